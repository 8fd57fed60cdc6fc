//! The page in a real browser.

use serde_json::{Value, json};

use crate::{
    tab::Tab,
    util::{Running, start},
};

/// Names of the rows that can be seen, from the top.
const NAMES: &str = "[...document.querySelectorAll('.row:not([hidden])')]\
    .sort((a, b) => a.index - b.index).map((row) => row.querySelector('.name').textContent).join()";
const FIRST: &str = "[...document.querySelectorAll('.row:not([hidden])')]\
    .find((row) => row.index === 0)?.querySelector('.name').textContent ?? ''";
/// What of the text that stands in the place of rows is seen.
const SEEN_IF_EMPTY: &str = "document.querySelector('#empty').hidden ? '' : \
    [...document.querySelector('#empty').children].filter((it) => it.offsetHeight > 0).map((it) => it.id).join()";
const CHOSEN: &str = "document.querySelector('.row.chosen .name')?.textContent ?? ''";

/// Runs a test that blocks beside a server.
async fn with(server: Running, test: impl FnOnce(&mut Tab, &Running) + Send + 'static) {
    tokio::task::spawn_blocking(move || {
        let mut tab = Tab::open();
        test(&mut tab, &server);
        assert!(tab.errors.is_empty(), "{:#?}", tab.errors);
    })
    .await
    .unwrap();
}

fn log(server: &Running, entries: Value) {
    let runtime = tokio::runtime::Handle::current();
    let answer = runtime.block_on(server.post("/log/batch", entries.to_string()));
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// A day of a small shop.
fn story() -> Value {
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let span = |n: u8| format!("00000000000000{n:02x}");
    let mut entries = vec![];
    let routine = [
        (
            "inventory.sync",
            "python",
            "('warehouse-2',)",
            "{'changed': 14, 'missing': 0}",
            182.4,
        ),
        (
            "backup",
            "bash",
            "('/srv/data', '--incremental')",
            "'214 files, 1.8 GB'",
            48_210.0,
        ),
        (
            "Mailer.send_receipt",
            "python",
            "('order 10482',)",
            "'queued'",
            12.9,
        ),
        (
            "render_page",
            "javascript",
            "('/products/teapot',)",
            "'200'",
            4.31,
        ),
        (
            "resize_image",
            "rust",
            "('teapot.jpg', 640)",
            "'teapot-640.webp'",
            31.7,
        ),
        ("cache.warm", "go", "('front page',)", "37", 0.842),
    ];
    for n in 0..60 {
        let (name, module, args, value, ms) = routine[n % routine.len()];
        entries.push(json!({
            "function_name": name, "module": module, "args": args, "return_value": value,
            "duration_ms": ms, "environment": "prod", "version": "2.4.1",
            "level": if n % 13 == 5 { "WARNING" } else if n % 7 == 3 { "DEBUG" } else { "INFO" },
        }));
    }
    let traceback = "Traceback (most recent call last):\n  File \"shop/checkout.py\", line 88, in pay\n    \
        charge = gateway.charge(card, total)\n  File \"shop/gateway.py\", line 41, in charge\n    \
        return self.post(\"/charges\", amount=total, timeout=5)\nTimeoutError: no answer from the gateway after 5 s";
    for (n, parent, name, ms, level) in [
        (1, 0, "POST /checkout", 5312.0, "ERROR"),
        (2, 1, "Basket.total", 1.204, "INFO"),
        (3, 2, "tax_rate", 0.311, "DEBUG"),
        (4, 1, "Checkout.pay", 5301.7, "ERROR"),
        (5, 4, "Gateway.charge", 5300.2, "ERROR"),
        (6, 1, "Basket.release", 3.9, "INFO"),
    ] {
        let failed = level == "ERROR";
        entries.push(json!({
            "function_name": name, "module": "shop.checkout", "args": "('order 10482',)",
            "kwargs": "{'currency': 'EUR'}", "level": level, "duration_ms": ms,
            "environment": "prod", "version": "2.4.1", "trace_id": trace,
            "exception": if failed { "no answer from the gateway after 5 s" } else { "" },
            "exception_type": if failed { "TimeoutError" } else { "" },
            "traceback": if failed { traceback } else { "" },
            "extra": {"span_id": span(n), "parent_id": if parent > 0 { span(parent) } else { String::new() },
                      "host": "shop-3"},
        }));
    }
    // Some seconds apart, the last one now.
    let (n_entries, now) = (entries.len() as i64, logkit::Timestamp::now().micros());
    for (idx, entry) in (0..).zip(&mut entries) {
        let before = (n_entries - 1 - idx) * 7_301_337 + idx % 7 * 301_000;
        let at = logkit::Timestamp::from_micros(now - before);
        entry["timestamp"] = at.to_string().into();
    }
    entries.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_listed_opened_and_searched_with_the_keyboard() {
    with(start(|_| {}).await, |tab, server| {
        tab.goto(&server.url("/"));
        tab.wait("document.querySelector('#try').textContent.includes('curl')", true);
        log(server, story());
        tab.goto(&server.url("/"));
        tab.wait(FIRST, "Basket.release");
        tab.wait("document.querySelector('#state').textContent", "66 entries");
        tab.press("j");
        tab.press("j");
        tab.wait(CHOSEN, "Gateway.charge");
        tab.press("Enter");
        tab.wait("document.querySelector('#pane h2').textContent", "Gateway.charge");
        let pane = tab.eval("document.querySelector('#pane').textContent");
        let pane = pane.as_str().unwrap();
        for text in ["TimeoutError: no answer", "shop/gateway.py", "shop.checkout", "shop-3"] {
            assert!(pane.contains(text), "{text}");
        }
        // Each call below the one that made it.
        tab.wait("document.querySelectorAll('.tree button').length", 6);
        tab.wait(
            "document.querySelector('.tree .tree .tree .tree, .tree > li > .tree > li > .tree button').textContent",
            "tax_rate0.311 ms",
        );
        tab.wait("document.querySelector('.tree [aria-current=true]').textContent", "Gateway.charge5.30 s");
        tab.picture("logkit-page-light");
        tab.colours("dark");
        tab.picture("logkit-page-dark");
        let dark = tab.eval("getComputedStyle(document.body).backgroundColor");
        tab.colours("light");
        assert_ne!(tab.eval("getComputedStyle(document.body).backgroundColor"), dark);
        tab.press("k");
        tab.wait("document.querySelector('#pane h2').textContent", "Basket.release");
        tab.press("Escape");
        tab.wait("document.querySelector('#pane').hidden", true);

        tab.press("/");
        tab.wait("document.activeElement.id", "search");
        tab.write("fn:render teapot");
        tab.wait(FIRST, "render_page");
        tab.wait("document.querySelector('#state').textContent", "10 entries");
        tab.press("Escape");
        tab.wait("document.activeElement.id", "list");
        tab.eval("document.querySelector('#search').value = ''");
        tab.eval("[...document.querySelectorAll('#levels button')].find((it) => it.textContent === 'Error').click()");
        tab.wait("document.querySelector('#state').textContent", "3 entries");
        tab.wait(NAMES, "Gateway.charge,Checkout.pay,POST /checkout");
        assert!(tab.eval("location.search").as_str().unwrap().contains("level=Error"));
        // The address shows the same again.
        let address = tab.eval("location.href");
        tab.goto(address.as_str().unwrap());
        tab.wait("document.querySelector('#state').textContent", "3 entries");
        for (typed, says) in [
            ("since:nonsense", "since: takes a time ago or a moment"),
            ("slow:abc", "slow: takes milliseconds, such as slow:100"),
        ] {
            tab.eval(&format!("document.querySelector('#search').value = '{typed}'; reload()"));
            for place in ["#state", "#why"] {
                tab.wait(&format!("document.querySelector('{place}').textContent.includes('{says}')"), true);
            }
        }
        tab.wait(SEEN_IF_EMPTY, "why,all");
        // The browser tells of the refusal as well; that is what was asked for.
        tab.errors.retain(|error| !error.contains("422"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_without_results_is_told_from_an_empty_database() {
    with(start(|_| {}).await, |tab, server| {
        tab.goto(&server.url("/?q=teapot"));
        tab.wait(SEEN_IF_EMPTY, "why,try");
        log(server, json!([{"cmd": "backup"}]));
        tab.goto(&server.url("/?q=teapot&level=error"));
        tab.wait(
            "document.querySelector('#why').textContent",
            "Nothing matches.",
        );
        tab.wait(SEEN_IF_EMPTY, "why,all");
        tab.eval("document.querySelector('#all').click()");
        tab.wait(NAMES, "backup");
        tab.wait(SEEN_IF_EMPTY, "");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_shows_the_date_and_how_long_it_took() {
    with(start(|_| {}).await, |tab, server| {
        log(server, story());
        log(server, json!([{"cmd": "long ago", "timestamp": "2019-03-05T01:02:03Z"}]));
        for width in [1200, 390] {
            tab.width(width);
            tab.goto(&server.url("/"));
            tab.wait(FIRST, "Basket.release");
            let row = "[...document.querySelectorAll('.row:not([hidden])')].find((row) => row.index === 0)";
            // Nothing is cut off, lies outside, or over another part.
            let parts = tab.eval(&format!(
                "[...{row}.children].filter((it) => it.className !== 'text').map((it) => {{ \
                 const box = it.getBoundingClientRect(); const line = it.parentNode.getBoundingClientRect(); \
                 return it.scrollWidth <= it.clientWidth && box.width > 0 && box.top >= line.top - 1 \
                 && box.bottom <= line.bottom + 1 && box.right <= innerWidth; }}).join()"
            ));
            assert_eq!(parts, "true,true,true,true", "{width}");
            assert_eq!(tab.eval(&format!("{row}.querySelector('.took').textContent")), "3.90 ms");
            let today = "new Intl.DateTimeFormat(undefined, {month: 'short', day: 'numeric'}).format(new Date())";
            let dated = format!("{row}.querySelector('.time').textContent.startsWith({today})");
            assert_eq!(tab.eval(&dated), true);
            assert_eq!(tab.eval("document.documentElement.scrollWidth"), width);
            tab.picture(&format!("page-{width}"));
            tab.press("G");
            tab.wait(CHOSEN, "long ago");
            tab.wait("document.querySelector('.row.chosen .time').textContent.includes('2019')", true);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_logged_stays_text() {
    with(start(|_| {}).await, |tab, server| {
        let evil = "<img src=x onerror='document.title=\"evil\"'><script>document.title='evil'</script>";
        let span = "00000000000000ab";
        log(
            server,
            json!([{"cmd": evil, "trace_id": evil}, {
                "function_name": evil, "module": evil, "args": evil, "kwargs": evil,
                "return_value": evil, "exception": evil, "exception_type": evil, "traceback": evil,
                "level": evil, "trace_id": evil, "version": evil, "llm_analysis": evil,
                "environment": evil, "extra": {evil: evil, "span_id": span, "parent_id": span},
            }]),
        );
        tab.goto(&server.url("/"));
        tab.wait(FIRST, evil);
        tab.press("Enter");
        tab.wait("document.querySelector('#pane h2').textContent", evil);
        tab.wait("document.querySelectorAll('.tree button').length", 2);
        assert_eq!(tab.eval("document.querySelectorAll('img, main script').length"), 0);
        assert_eq!(tab.eval("document.title"), "logkit");
        // Nor does anything else run that is not the page's own.
        let run = "try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); 'ran' } catch (error) { error.name }";
        assert_eq!(tab.eval(run), "TypeError");
        tab.errors.retain(|error| !error.contains("TrustedHTML"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_entries_come_while_one_follows() {
    with(start(|_| {}).await, |tab, server| {
        log(server, json!([{"cmd": "old"}]));
        tab.goto(&server.url("/"));
        tab.wait(FIRST, "old");
        tab.press("f");
        tab.wait(
            "document.querySelector('#follow').getAttribute('aria-pressed')",
            "true",
        );
        log(server, json!([{"cmd": "new 1"}, {"cmd": "new 2"}]));
        tab.wait(NAMES, "new 2,new 1,old");
        // A level that hides what comes.
        tab.eval("setLevel('Error')");
        tab.wait(NAMES, "");
        log(
            server,
            json!([{"cmd": "fine"}, {"cmd": "bad", "success": false}]),
        );
        tab.wait(NAMES, "bad");
        tab.press("f");
        tab.wait("document.querySelector('#state').textContent", "1 entry");
        log(server, json!([{"cmd": "unseen", "success": false}]));
        tab.press("f");
        tab.wait(NAMES, "unseen,bad");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_need_few_elements() {
    with(start(|_| {}).await, |tab, server| {
        let n_rows = std::env::var("LOGKIT_PAGE_ROWS").map_or(20_000, |n| n.parse().unwrap());
        for part in 0..n_rows / 10_000 {
            let entries = (0..10_000).map(|n| json!({"cmd": format!("c{}", part * 10_000 + n)}));
            log(server, entries.collect());
        }
        tab.goto(&server.url("/"));
        tab.wait(FIRST, format!("c{}", n_rows - 1));
        // To the end of what is there, again and again.
        let scroll = "new Promise((done) => { const step = () => { list.scrollTop = 1e9; \
            state.ended ? done(state.rows.length) : setTimeout(step, 5); }; step(); })";
        assert_eq!(tab.eval(scroll), n_rows);
        tab.wait("document.querySelector('#state').textContent.replace(/\\D/g, '')", n_rows.to_string());
        tab.wait(&format!("{NAMES}.split(',').pop()"), "c0");
        assert!(tab.eval("document.querySelectorAll('.row').length").as_i64().unwrap() < 80);
        // Time to draw one screen, whatever the browser does after it.
        let slowest = "(() => { let worst = 0; for (let n = 0; n < 200; n++) { list.scrollTop = n * 7919 % \
            (state.rows.length * 32); const at = performance.now(); draw(); worst = Math.max(worst, \
            performance.now() - at); } return worst; })()";
        let slowest = tab.eval(slowest).as_f64().unwrap();
        println!("{n_rows} rows: a screen is drawn in at most {slowest} ms");
        // Far more than it takes, and far less than elements for all rows would.
        assert!(slowest < 2000.0);
        tab.press("g");
        tab.wait(CHOSEN, format!("c{}", n_rows - 1));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_asks_for_the_key() {
    let server = start(|settings| settings.api_keys = vec!["sesame".into()]).await;
    with(server, |tab, server| {
        let request = server.client.post(server.url("/log")).bearer_auth("sesame");
        let runtime = tokio::runtime::Handle::current();
        runtime.block_on(server.send(request.body(r#"{"cmd": "secret"}"#)));
        tab.goto(&server.url("/"));
        for key in ["wrong", "sesame"] {
            tab.wait("document.querySelector('#key').open", true);
            assert_eq!(
                tab.eval("document.querySelectorAll('.row:not([hidden])').length"),
                0
            );
            tab.write(key);
            tab.press("Enter");
        }
        tab.wait(NAMES, "secret");
        assert_eq!(tab.eval("localStorage.getItem('logkit-key')"), Value::Null);
        tab.errors.retain(|error| !error.contains("401"));
    })
    .await;
}
