//! The web app: its files over HTTP, and journeys through it in a real browser.

use std::{io::Read as _, net::SocketAddr, time::Duration};

use http::{Method, Response};
use http_body_util::BodyExt as _;
use llmsrv_api::catalogue::{Catalogue, CatalogueModel};
use llmsrv_engine::fake::{Answer, FakeOptions};
use llmsrv_server::{ApiKey, CatalogueSource, Keys, Role, Settings, keys::digest, serve};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    app::{
        ANSWER, DIALOG, LAST, NOTES, NOTICE, OUTSIDE, QUIET, TITLES, act, choose, click, go, send,
    },
    host::{Host, configured, host, host_with, keyed, saying, settings},
    registry::{fake::Act, registry_with},
    tab::Tab,
};

/// An answer that is still coming is kept as far as it came.
const KEPT: &str = "new Promise((done) => { indexedDB.open('llmsrv').onsuccess = ({ target: { result: database } }) => { \
    const chats = database.transaction('chats').objectStore('chats').getAll(); chats.onsuccess = () => { database.close(); \
    const nodes = chats.result.flatMap((chat) => Object.values(chat.nodes)); \
    done(nodes.some((node) => node.unfinished && node.content.length > 40)); }; }; })";

/// What was asked of the browser's database before is read, and drawn. A transaction that may write waits for those
/// before it.
const READ: &str = "new Promise((done) => { indexedDB.open('llmsrv').onsuccess = ({ target: { result: database } }) => { \
    const writing = database.transaction('chats', 'readwrite'); writing.objectStore('chats').count(); \
    writing.oncomplete = () => { database.close(); \
    requestAnimationFrame(() => requestAnimationFrame(() => done(true))); }; }; })";

const BROWSER: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

async fn page(host: &Host, headers: &[(&str, &str)]) -> Response<axum::body::Body> {
    host.send(Method::GET, "/", headers, "").await
}

async fn bytes(response: Response<axum::body::Body>) -> Vec<u8> {
    response
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes()
        .to_vec()
}

/// The paths of the files that the page names.
fn files(page: &str) -> Vec<String> {
    let paths = page.split('"').filter(|part| part.starts_with("app/"));
    paths.map(|path| format!("/{path}")).collect()
}

#[tokio::test]
async fn browsers_get_the_page_and_others_the_old_text() {
    let host = host();
    for accept in ["*/*", "application/json", "text/plain", "text/html;q=0"] {
        let response = page(&host, &[("accept", accept)]).await;
        assert_eq!(
            response.headers()["content-type"],
            "text/plain; charset=utf-8"
        );
        assert!(!response.headers().contains_key("content-security-policy"));
        assert_eq!(bytes(response).await, b"Ollama is running", "{accept}");
    }
    let response = page(&host, &[BROWSER]).await;
    assert_eq!(response.status(), 200);
    let headers = response.headers().clone();
    assert_eq!(headers["content-type"], "text/html; charset=utf-8");
    assert_eq!(headers["x-content-type-options"], "nosniff");
    assert_eq!(headers["referrer-policy"], "no-referrer");
    assert_eq!(headers["cache-control"], "no-cache");
    assert_eq!(headers["vary"], "Accept, Accept-Encoding");
    let policy = headers["content-security-policy"].to_str().unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    let text = String::from_utf8(bytes(response).await).unwrap();
    assert!(!text.contains("<style") && !text.contains("onclick") && !text.contains("://"));
    // The same page again costs a question.
    let tag = headers["etag"].to_str().unwrap();
    let again = page(&host, &[BROWSER, ("if-none-match", tag)]).await;
    assert_eq!(again.status(), 304);
    assert!(bytes(again).await.is_empty());
}

#[tokio::test]
async fn files_stay_in_the_browser_for_good_and_are_small() {
    let host = host();
    let response = page(&host, &[BROWSER, ("accept-encoding", "gzip, br")]).await;
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let mut total = bytes(response).await.len();
    let plain = bytes(page(&host, &[BROWSER]).await).await;
    let files = files(std::str::from_utf8(&plain).unwrap());
    assert!(files.len() > 8, "{files:?}");
    for path in &files {
        let ask = async |encoding| {
            let headers = [("accept-encoding", encoding)];
            host.send(Method::GET, path, &headers, "").await
        };
        let whole = ask("identity").await;
        assert_eq!(whole.status(), 200, "{path}");
        assert!(!whole.headers().contains_key("content-encoding"));
        let whole = bytes(whole).await;
        let response = ask("gzip").await;
        let headers = response.headers();
        let age = "public, max-age=31536000, immutable";
        assert_eq!(headers["cache-control"], age, "{path}");
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        let kind = match path.rsplit('.').next().unwrap() {
            "js" => "text/javascript; charset=utf-8",
            "css" => "text/css; charset=utf-8",
            _ => "image/svg+xml",
        };
        assert_eq!(headers["content-type"], kind, "{path}");
        let compressed = bytes(response).await;
        total += compressed.len();
        let mut text = Vec::new();
        let mut gzip = flate2::read::GzDecoder::new(&compressed[..]);
        gzip.read_to_end(&mut text).unwrap();
        assert_eq!(text, whole, "{path}");
    }
    assert!(total < 100_000, "{total} bytes");
    let version = files[0].split('/').nth(2).unwrap();
    for path in [
        "/app/0000000000000000/app.js".to_owned(),
        format!("/app/{version}/nothing.js"),
        format!("/app/{version}/index.html"),
        format!("/app/{version}/..%2f..%2fCargo.toml"),
    ] {
        let response = host.send(Method::GET, &path, &[], "").await;
        assert_eq!(response.status(), 404, "{path}");
        assert!(!response.headers().contains_key("cache-control"), "{path}");
    }
}

fn key(name: &str, role: Role) -> ApiKey {
    ApiKey {
        name: name.into(),
        role,
        digest: digest(name.as_bytes()),
    }
}

fn with_keys() -> Settings {
    let keys = vec![key("chatter", Role::Infer), key("keeper", Role::Manage)];
    keyed(Keys::required(keys))
}

#[tokio::test]
async fn status_tells_the_role_of_the_caller() {
    let open = host();
    let role = async |host: &Host, headers: &[(&str, &str)]| {
        let response = host.send(Method::GET, "/api/status", headers, "").await;
        let value: Value = serde_json::from_slice(&bytes(response).await).unwrap();
        value["role"].clone()
    };
    assert_eq!(role(&open, &[]).await, "admin");
    // A page from elsewhere that may call manages nothing.
    let trusting = configured(|config| config.origins = vec!["https://a.example".into()]);
    let trusting = host_with(trusting, FakeOptions::default);
    let foreign = [("origin", "https://a.example")];
    assert_eq!(role(&trusting, &foreign).await, "infer");
    let proxied = [("x-forwarded-for", "10.0.0.1")];
    assert_eq!(role(&open, &proxied).await, "infer");
    let keyed = host_with(with_keys(), FakeOptions::default);
    for (key, expected) in [("chatter", "infer"), ("keeper", "manage")] {
        assert_eq!(role(&keyed, &[("x-api-key", key)]).await, expected);
    }
    assert_eq!(role(&keyed, &[]).await, Value::Null);
    // The app itself needs none.
    assert_eq!(page(&keyed, &[BROWSER]).await.status(), 200);
}

// ---- journeys ----

async fn listen(host: &Host) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, host.app.clone(), std::future::pending()));
    address
}

/// Opens the app of a server in a browser. No message may be left on the console.
async fn with(host: Host, test: impl FnOnce(&mut Tab, &str, &Host) + Send + 'static) {
    let url = format!("http://{}/", listen(&host).await);
    tokio::task::spawn_blocking(move || {
        let mut tab = Tab::open();
        tab.goto(&url);
        test(&mut tab, &url, &host);
        tab.eval("0");
        assert!(tab.errors.is_empty(), "{:#?}", tab.errors);
    })
    .await
    .unwrap();
}

fn rules() -> Host {
    host_with(settings(), || FakeOptions {
        answer: Answer::Rules(vec![
            ("second".into(), "Two.".into()),
            ("first".into(), "**One**, and `code`.".into()),
            (String::new(), "What?".into()),
        ]),
        ..FakeOptions::default()
    })
}

fn slow(answer: Answer) -> Host {
    host_with(settings(), move || FakeOptions {
        answer: answer.clone(),
        step_delay: Duration::from_millis(4),
        ..FakeOptions::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_streams_and_goes_on_after_a_reload() {
    with(rules(), |tab, url, _| {
        choose(tab, "plain");
        send(tab, "the first <b>thing</b>");
        tab.wait(ANSWER, "One, and code.");
        tab.wait(QUIET, true);
        tab.wait(&format!("{LAST}.querySelectorAll('strong, code').length"), 2);
        tab.wait("document.querySelector('.message.user .text').textContent", "the first <b>thing</b>");
        tab.wait(&format!("/tokens? · .* to the first token$/.test({LAST}.querySelector('.stats').textContent)"), true);
        tab.wait("/^\\d+ of 4,096 tokens$/.test(document.querySelector('#meter').textContent)", true);
        tab.wait("document.querySelector('#said').textContent", "**One**, and `code`.");
        tab.wait(TITLES, "the first <b>thing</b>");
        assert_eq!(tab.eval("location.hash.startsWith('#/c/')"), true);
        tab.call("Page.reload", json!({}));
        tab.wait(ANSWER, "One, and code.");
        tab.wait("document.querySelector('#model').value", "plain:latest");
        send(tab, "and the second");
        tab.wait(ANSWER, "Two.");
        tab.wait("document.querySelectorAll('.message').length", 4);
        tab.wait(QUIET, true);
        // A new one, by keyboard, and back.
        tab.eval("document.activeElement.blur()");
        tab.press("n");
        tab.wait("document.querySelectorAll('.message').length", 0);
        tab.wait("location.hash", "#/");
        tab.eval("history.back()");
        tab.wait("document.querySelectorAll('.message').length", 4);
        tab.goto(url);
        tab.wait(TITLES, "the first <b>thing</b>");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_stopped_in_mid_stream() {
    with(slow(Answer::Endless), |tab, _, host| {
        choose(tab, "plain");
        send(tab, "go on");
        tab.wait(&format!("({ANSWER}).length > 40"), true);
        tab.wait(
            "document.querySelector('#send').getAttribute('aria-label')",
            "Stop",
        );
        tab.press("Escape");
        tab.wait(QUIET, true);
        tab.wait(NOTES, "Stopped");
        let text = tab.eval(ANSWER);
        // The server has stopped, too.
        let runtime = tokio::runtime::Handle::current();
        for _ in 0..200 {
            let (_, figures) = runtime.block_on(host.text(Method::GET, "/metrics", ""));
            let running = figures.lines().find(|line| {
                line.starts_with("llmsrv_model_sequences") && line.contains("running")
            });
            if running.is_some_and(|line| line.ends_with(" 0")) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        tab.call("Page.reload", json!({}));
        tab.wait(ANSWER, text);
        tab.wait(NOTES, "Stopped");
        // And what a reload cuts off is kept as far as it came.
        send(tab, "once more");
        tab.wait(&format!("({ANSWER}).length > 40"), true);
        tab.wait(KEPT, true);
        tab.call("Page.reload", json!({}));
        tab.wait(NOTES, "Stopped,This answer is not finished.");
        assert_eq!(tab.eval(&format!("({ANSWER}).length > 40")), true);
        tab.wait(QUIET, true);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_edited_and_tried_again_in_branches() {
    let host = host_with(settings(), || FakeOptions {
        answer: Answer::Echo,
        ..FakeOptions::default()
    });
    with(host, |tab, _, _| {
        choose(tab, "plain");
        send(tab, "one");
        tab.wait(ANSWER, "one");
        tab.wait(QUIET, true);
        // By keyboard: up from an empty field.
        tab.press("ArrowUp");
        tab.wait(
            "document.activeElement.getAttribute('aria-label')",
            "Edit the message",
        );
        tab.eval("document.activeElement.select()");
        tab.write("two");
        tab.press("Enter");
        tab.wait(ANSWER, "two");
        tab.wait(QUIET, true);
        tab.wait(
            "document.querySelector('.message.user .branches').textContent",
            "2/2",
        );
        act(tab, "user", "Earlier version");
        tab.wait(ANSWER, "one");
        tab.wait(
            "document.querySelector('.message.user .branches').textContent",
            "1/2",
        );
        act(tab, "assistant", "Try again");
        tab.wait(
            "document.querySelector('.message.assistant .branches')?.textContent ?? ''",
            "2/2",
        );
        tab.wait(QUIET, true);
        act(tab, "user", "Later version");
        tab.wait(ANSWER, "two");
        // All of it is there after a reload.
        tab.call("Page.reload", json!({}));
        tab.wait(ANSWER, "two");
        act(tab, "user", "Earlier version");
        tab.wait(
            "document.querySelector('.message.assistant .branches')?.textContent ?? ''",
            "2/2",
        );
        // An edit that is given up changes nothing.
        act(tab, "user", "Edit");
        tab.press("Escape");
        tab.wait("document.querySelectorAll('.editing').length", 0);
        tab.wait(ANSWER, "one");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_leave_and_come_back_as_json_and_markdown() {
    with(rules(), |tab, url, _| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap().to_owned();
        tab.call(
            "Browser.setDownloadBehavior",
            json!({"behavior": "allow", "downloadPath": path}),
        );
        choose(tab, "plain");
        send(tab, "the first\n\n<!-- message: user -->\n## You");
        tab.wait(ANSWER, "One, and code.");
        tab.wait(QUIET, true);
        let menu = |tab: &mut Tab, label: &str| {
            tab.eval(&format!(
                "[...document.querySelectorAll('.menu button')].find((it) => it.textContent === '{label}').click()"
            ));
        };
        menu(tab, "Export as Markdown");
        menu(tab, "Export as JSON");
        let exported = |end: &str| {
            for _ in 0..500 {
                let found = std::fs::read_dir(&path).unwrap().find_map(|entry| {
                    let path = entry.unwrap().path();
                    path.extension().is_some_and(|it| it == end).then_some(path)
                });
                if let Some(found) = found {
                    return found;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            panic!("no {end} file");
        };
        let files = ["md", "json"].map(exported);
        let text = std::fs::read_to_string(&files[0]).unwrap();
        assert!(text.starts_with("# the first") && text.contains("**One**, and `code`."), "{text}");
        // Gone, after a question.
        menu(tab, "Delete");
        tab.wait(DIALOG, "Delete this conversation?");
        click(tab, "#dialog button.danger");
        tab.wait(TITLES, "");
        tab.wait("document.querySelectorAll('.message').length", 0);
        for (n, file) in files.iter().enumerate() {
            let document = tab.call("DOM.getDocument", json!({}));
            let root = document["root"]["nodeId"].clone();
            let input = tab.call(
                "DOM.querySelector",
                json!({"nodeId": root, "selector": "#import-file"}),
            );
            tab.call(
                "DOM.setFileInputFiles",
                json!({"nodeId": input["nodeId"], "files": [file.to_str().unwrap()]}),
            );
            tab.wait("document.querySelectorAll('#chats li').length", n + 1);
            tab.wait(ANSWER, "One, and code.");
            tab.wait("document.querySelectorAll('.message').length", 2);
            tab.wait(
                "document.querySelector('.message.user .text').textContent",
                "the first\n\n<!-- message: user -->\n## You",
            );
        }
        let nothing = "import(document.querySelector('script').src.replace('app.js', 'conversation.js')).then((it) => \
            ['', '{}', '[1]', 'hello', '{\"format\":\"llmsrv-conversations\",\"conversations\":[]}', '{\"format\"'].map((text) => \
            { try { return it.fromFile(text).length; } catch (error) { return error instanceof it.Unreadable; } }).join())";
        assert_eq!(tab.eval(nothing), "true,true,true,true,true,true");
        // What is not as it should be is left out.
        let odd = json!({"format": "llmsrv-conversations", "conversations": [{
            "id": "x", "title": 5, "leaf": "b", "options": {"tools": {}, "num_ctx": "x", "think": 5, "seed": 7, "y": 1},
            "nodes": {"a": {"id": "a", "parent": "b", "role": "user", "content": ["no text"], "images": [
                {"data": "x\" onload=\"", "kind": "image/png"}, {"data": "AAAA", "kind": "image/svg+xml"}]},
                "b": {"id": "b", "parent": "a", "role": "assistant", "stats": {"tokens": "many"}, "tool_calls": [{}]},
                "c": {"id": "c", "role": "other"}},
        }]});
        let read = format!(
            "import(document.querySelector('script').src.replace('app.js', 'conversation.js')).then((it) => {{ \
             const [chat] = it.fromFile({}); const path = it.path(chat); \
             return [JSON.stringify(chat.options), path.length, path.map((node) => node.images?.length ?? '').join(), \
               path.at(-1).stats.tokens, path.at(-1).tool_calls.length, chat.title === ''].join(' '); }})",
            json!(odd.to_string())
        );
        assert_eq!(tab.eval(&read), "{\"seed\":7} 2 0, 0 0 true");
        tab.goto(url);
    })
    .await;
}

const ATTACK: &str = "<img src=x onerror=\"document.title='evil'\"> <script>document.title='evil'</script> \
    [a](javascript:document.title='evil') [b](data:text/html,x) ![c](https://evil.example/p.png) \
    <a href=\"https://evil.example\" onclick=\"x\">d</a> [e](https://fine.example/?q=1 \"t\") \
    <javascript:alert(1)> [f](  JaVaScRiPt:alert(1)) [g](https://x\u{202e}y.example)\n\n\
    | <b>x</b> | y |\n|---|---|\n| <i>1</i> | [h](vbscript:x) |\n\n```<script>\n</code></pre><img src=x>\n```\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_says_stays_text() {
    with(saying(ATTACK), |tab, _, _| {
        choose(tab, "plain");
        send(tab, ATTACK);
        tab.wait(QUIET, true);
        tab.wait(&format!("{LAST}?.querySelectorAll('table').length ?? 0"), 1);
        let foreign = "document.querySelectorAll('main :is(img, script, iframe, object, b, i, style, form.x)').length";
        assert_eq!(tab.eval(foreign), 0);
        let links = format!("[...{LAST}.querySelectorAll('a')].map((it) => it.href).join(' ')");
        tab.wait(&links, "https://evil.example/p.png https://evil.example/ https://fine.example/?q=1");
        let apart = format!("[...{LAST}.querySelectorAll('a')].every((it) => it.target === '_blank' && it.rel.includes('noopener'))");
        assert_eq!(tab.eval(&apart), true);
        assert_eq!(tab.eval("[...document.querySelectorAll('*')].some((it) => [...it.attributes].some((at) => /^on/.test(at.name)))"), false);
        assert!(tab.eval(ANSWER).as_str().unwrap().contains("<img src=x onerror="));
        assert!(!tab.eval("document.title").as_str().unwrap().starts_with("evil"));
        // Nothing else than the app's own files runs, and nothing makes elements out of text.
        for (run, error) in [
            ("document.body.insertAdjacentHTML('beforeend', '<b>x</b>')", "TypeError"),
            ("document.createElement('script').src = '/app/x.js'", "TypeError"),
        ] {
            let run = format!("try {{ {run}; 'ran' }} catch (error) {{ error.name }}");
            assert_eq!(tab.eval(&run), error);
        }
        let fetched = "fetch('http://127.0.0.1:1/').then(() => 'sent', () => 'refused')";
        assert_eq!(tab.eval(fetched), "refused");
        tab.errors.retain(|error| !error.contains("Trusted") && !error.contains("Content Security Policy"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_drawn_as_the_whole_text_and_keeps_what_has_ended() {
    with(host(), |tab, _, _| {
        let sample = include_str!("../fixtures/sample.md");
        let check = format!(
            "import(document.querySelector('script').src.replace('app.js', 'markdown.js')).then(({{ Renderer }}) => {{ \
             const text = {}, whole = document.createElement('div'), box = document.createElement('div'); \
             new Renderer(whole).update(text, true); \
             const renderer = new Renderer(box); let first = null, made = 0; \
             const seen = new WeakSet(); \
             for (let n = 1; n <= text.length; n++) {{ \
               renderer.update(text.slice(0, n), false); \
               if (n === 400) first = box.firstChild; \
               if (box.firstChild && n > 400 && box.firstChild !== first) return 'rebuilt at ' + n; \
               for (const it of box.children) if (!seen.has(it)) {{ seen.add(it); made += 1; }} \
             }} \
             renderer.update(text, true); \
             return [box.innerHTML === whole.innerHTML, whole.children.length > 12, \
               whole.querySelectorAll('h3, ul, ol, table, blockquote, figure, strong, em, del, a, input').length > 20].join(); }})",
            json!(sample)
        );
        assert_eq!(tab.eval(&check), "true,true,true");
        // What is made to take long does not.
        for text in [
            "'['.repeat(100000)", "'*a'.repeat(50000)", "'[a]('.repeat(30000)", "'`a``b'.repeat(20000)",
            "'> '.repeat(20000)", "'- '.repeat(20000)", "'_a_ '.repeat(30000)", "'<http://'.repeat(30000)",
            "'a\\n\\n'.repeat(10000)", "'|a'.repeat(5000) + '\\n' + '|-'.repeat(5000) + '\\n|b'",
        ] {
            let time = format!(
                "import(document.querySelector('script').src.replace('app.js', 'markdown.js')).then(({{ Renderer }}) => {{ \
                 const at = performance.now(); new Renderer(document.createElement('div')).update({text}, true); \
                 return performance.now() - at; }})"
            );
            let ms = tab.eval(&time).as_f64().unwrap();
            // Far more than it takes, and far less than what grows with the square would.
            assert!(ms < 5000.0, "{text}: {ms} ms");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn long_conversations_are_built_as_one_scrolls() {
    with(rules(), |tab, url, _| {
        let make = "(async () => { const at = document.querySelector('script').src; \
            const talk = await import(at.replace('app.js', 'conversation.js')), store = await import(at.replace('app.js', 'store.js')); \
            const chat = talk.create('plain:latest'); \
            for (let n = 0; n < 10000; n++) talk.add(chat, chat.leaf, { role: n % 2 ? 'assistant' : 'user', content: 'Message **' + n + '**', model: 'plain' }); \
            await store.save(chat); location.hash = '#/c/' + chat.id; })()";
        choose(tab, "plain");
        tab.eval(make);
        tab.wait(ANSWER, "Message 9999");
        assert!(tab.eval("document.querySelectorAll('.message').length").as_i64().unwrap() < 200);
        tab.wait("document.querySelector('.earlier').textContent.endsWith('earlier messages')", true);
        let before = tab.eval("document.querySelectorAll('.message').length").as_i64().unwrap();
        tab.eval("document.querySelector('#talk').scrollTop = 0");
        tab.wait(&format!("document.querySelectorAll('.message').length > {before}"), true);
        // What one reads stays in its place.
        tab.wait("document.querySelector('#talk').scrollTop > 500", true);
        let at = std::time::Instant::now();
        let reload = tab.eval("location.href");
        tab.goto(url);
        tab.goto(reload.as_str().unwrap());
        tab.wait(ANSWER, "Message 9999");
        println!("10,000 messages are opened in {:?}", at.elapsed());
        send(tab, "second");
        tab.wait(ANSWER, "Two.");
        tab.wait(QUIET, true);
        // Who goes elsewhere before it is read stays there.
        tab.eval(
            "(() => { const hash = location.hash; location.hash = '#/'; setTimeout(() => { location.hash = hash; \
             setTimeout(() => { location.hash = '#/models'; }); }, 50); })()",
        );
        tab.wait("document.querySelectorAll('.models li').length > 3", true);
        tab.wait(READ, true);
        tab.wait("document.querySelectorAll('.models li').length > 3", true);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_asks_for_a_key_and_keeps_to_its_role() {
    let host = host_with(with_keys(), || FakeOptions {
        answer: Answer::Text("Hello.".into()),
        ..FakeOptions::default()
    });
    with(host, |tab, url, _| {
        for key in ["wrong", "chatter"] {
            tab.wait(DIALOG, "API key");
            tab.wait("document.activeElement.type", "password");
            tab.write(key);
            tab.press("Enter");
            tab.wait(&format!("({DIALOG}) === '' || document.activeElement.value === ''"), true);
        }
        choose(tab, "plain");
        send(tab, "hi");
        tab.wait(ANSWER, "Hello.");
        for pane in ["models", "machine"] {
            tab.eval(&format!("location.hash = '#/{pane}'"));
            tab.wait("document.querySelector('main .empty h2')?.textContent ?? ''", "Not with this role");
            assert_eq!(tab.eval("document.querySelectorAll('.models, .tiles').length"), 0);
        }
        // Another key opens more.
        click(tab, "main .empty button");
        tab.wait(DIALOG, "API key");
        tab.write("keeper");
        tab.press("Enter");
        tab.wait("document.querySelectorAll('.tile').length", 4);
        // The list of requests has the names of keys, which are their texts here.
        tab.eval("location.hash = '#/'");
        tab.wait("document.querySelectorAll('.tile').length", 0);
        // No key is kept anywhere.
        let kept = "JSON.stringify([localStorage, sessionStorage, document.cookie, document.documentElement.outerHTML])";
        let kept = tab.eval(kept);
        assert!(!kept.as_str().unwrap().contains("chatter") && !kept.as_str().unwrap().contains("keeper"));
        tab.goto(url);
        tab.wait(DIALOG, "API key");
        tab.errors.retain(|error| !error.contains("401"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_pulled_described_and_deleted() {
    let host = host();
    let fake = registry_with(vec![7; 400_000]).await;
    let name = format!("{}/a/b:t", fake.host);
    fake.hook(|seen| {
        if seen.is_blob() {
            Act::Drip(4_000, Duration::from_millis(20))
        } else {
            Act::Normal
        }
    });
    let server = fake.host.clone();
    with(host, move |tab, url, _| {
        tab.goto(&format!("{url}#/models"));
        tab.wait("document.querySelectorAll('.models li').length > 6", true);
        let pull = |tab: &mut Tab, name: &str| {
            tab.eval("document.querySelector('#pull-name').focus(); document.querySelector('#pull-insecure').checked = true");
            tab.write(name);
            tab.press("Enter");
        };
        let status = "document.querySelector('.pulls .status')?.textContent ?? ''";
        // One that is not there.
        pull(tab, &format!("{server}/a/none:t"));
        tab.wait("document.querySelectorAll('.pulls .status.bad').length", 1);
        tab.wait(&format!("({status}).startsWith('pull model manifest: ')"), true);
        click(tab, ".pulls .icon");
        tab.wait("document.querySelectorAll('.pulls li').length", 0);
        // Cancelled, and gone on with.
        pull(tab, &name);
        tab.wait(&format!("/ of 400 kB/.test({status})"), true);
        tab.picture("app-pull");
        click(tab, ".pulls .icon");
        tab.wait(&format!("({status}).startsWith('Cancelled')"), true);
        fake.behave();
        tab.eval("[...document.querySelectorAll('.pulls button')].find((it) => it.textContent === 'Try again').click()");
        tab.wait(NOTICE, format!("{name} is here."));
        let row = format!("[...document.querySelectorAll('.models li')].find((it) => it.textContent.includes('{name}'))");
        tab.wait(&format!("Boolean({row})"), true);
        // A model that loads is told, and leaves.
        let plain = "[...document.querySelectorAll('.models li')].find((it) => it.querySelector('h3').textContent.startsWith('plain'))";
        tab.eval("fetch('api/generate', {method: 'POST', body: '{\"model\":\"plain\"}'}).then((it) => it.text())");
        tab.eval("location.hash = '#/machine'");
        tab.wait("document.querySelectorAll('.tile').length", 4);
        tab.wait("document.querySelector('tbody th')?.textContent ?? ''", "plain");
        tab.eval("location.hash = '#/models'");
        tab.wait(&format!("{plain}?.querySelector('.loaded')?.textContent.startsWith('In memory') ?? false"), true);
        let press = |row: &str, label: &str| {
            format!("[...{row}.querySelectorAll('button')].find((it) => it.textContent === '{label}').click()")
        };
        tab.eval(&press(plain, "Unload"));
        tab.wait(&format!("Boolean({plain}) && !{plain}.querySelector('.loaded')"), true);
        let speaker = plain.replace("plain", "speaker");
        tab.eval(&press(&speaker, "Make default"));
        tab.wait(&format!("{speaker}?.querySelector('.badge.main')?.textContent ?? ''"), "default");
        tab.eval(&press(plain, "Details"));
        tab.wait(DIALOG, "plain");
        tab.wait("document.querySelector('#dialog dd').textContent", "llama");
        // Faster than any hand: the first dialog is closing still.
        tab.press("Escape");
        tab.eval(&press(&row, "Delete"));
        tab.wait(DIALOG, format!("Delete {name}?"));
        click(tab, "#dialog button.danger");
        tab.wait(&format!("Boolean({row})"), false);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thinking_is_folded_and_tools_are_answered() {
    let host = host_with(settings(), || {
        FakeOptions {
        answer: Answer::Rules(vec![
            ("tool:sunny".into(), "It is sunny.".into()),
            ("weather".into(), "<tool_call>{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Paris\"}}</tool_call>".into()),
            (String::new(), "<think>Let me see.</think>\n\nYes.".into()),
        ]),
        ..FakeOptions::default()
    }
    });
    with(host, |tab, _, _| {
        choose(tab, "thinker");
        send(tab, "well?");
        tab.wait(ANSWER, "Yes.");
        tab.wait(QUIET, true);
        tab.wait("document.querySelector('.thinking').open", false);
        tab.wait("document.querySelector('.thinking div').textContent", "Let me see.");
        tab.eval("location.hash = '#/'");
        tab.wait("document.querySelectorAll('.message').length", 0);
        choose(tab, "caller");
        click(tab, "#options");
        tab.wait(DIALOG, "Options of this conversation");
        let tools = "document.querySelector('#dialog [name=tools]')";
        let write = |text: &str| format!("(() => {{ const it = {tools}; it.value = {}; it.dispatchEvent(new Event('input')); return it.validationMessage; }})()", json!(text));
        assert_eq!(tab.eval(&write("[1")), "This is no JSON.");
        let tool = r#"[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]"#;
        assert_eq!(tab.eval(&write(tool)), "");
        tab.eval("document.querySelector('#dialog [name=temperature]').value = '0'");
        click(tab, "#dialog button.main");
        tab.wait("document.querySelector('#options').classList.contains('changed')", true);
        send(tab, "the weather?");
        tab.wait("document.querySelector('.call strong')?.textContent ?? ''", "get_weather");
        tab.wait("JSON.parse(document.querySelector('.call pre').textContent).city", "Paris");
        tab.wait("document.querySelectorAll('.results textarea').length", 1);
        tab.eval("document.querySelector('.results textarea').focus()");
        tab.write("sunny");
        click(tab, ".results button");
        tab.wait(ANSWER, "It is sunny.");
        tab.wait("document.querySelectorAll('.message.tool').length", 1);
        tab.wait("document.querySelectorAll('.results').length", 0);
        tab.wait(QUIET, true);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn images_are_pasted_where_the_model_sees() {
    let host = host_with(settings(), || FakeOptions {
        answer: Answer::Text("A square.".into()),
        image_rows: 4,
        ..FakeOptions::default()
    });
    with(host, |tab, _, _| {
        let paste = "(async () => { const canvas = document.createElement('canvas'); canvas.width = 3000; canvas.height = 30; \
            const context = canvas.getContext('2d'); context.fillStyle = 'teal'; context.fillRect(0, 0, 3000, 30); \
            const blob = await new Promise((done) => canvas.toBlob(done)); \
            const data = new DataTransfer(); data.items.add(new File([blob], 'a.png', { type: 'image/png' })); \
            document.querySelector('#prompt').dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })); })()";
        choose(tab, "plain");
        tab.eval(paste);
        tab.wait(NOTICE, "plain cannot see images. Choose a model with “vision”.");
        choose(tab, "seer");
        tab.wait("document.querySelector('#attach').hidden", false);
        tab.eval(paste);
        tab.wait("document.querySelectorAll('#compose img').length", 1);
        // Larger than models look at: it was made smaller.
        tab.wait("document.querySelector('#compose img').naturalWidth", 2048);
        send(tab, "what is it?");
        tab.wait(ANSWER, "A square.");
        tab.wait("document.querySelectorAll('.message.user img').length", 1);
        tab.wait("document.querySelectorAll('#compose img').length", 0);
        tab.call("Page.reload", json!({}));
        tab.wait("document.querySelector('.message.user img')?.naturalWidth ?? 0", 2048);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tabs_show_the_same_conversations() {
    with(rules(), |tab, url, _| {
        let mut other = tab.beside();
        other.goto(url);
        choose(tab, "plain");
        send(tab, "the first");
        tab.wait(QUIET, true);
        other.wait(TITLES, "the first");
        other.eval("document.querySelector('#chats a').click()");
        other.wait(ANSWER, "One, and code.");
        send(tab, "second");
        tab.wait(ANSWER, "Two.");
        tab.wait(QUIET, true);
        other.wait(ANSWER, "Two.");
        other.wait("document.querySelectorAll('.message').length", 4);
        assert!(other.errors.is_empty(), "{:#?}", other.errors);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_is_told_and_can_be_tried_again() {
    with(host(), |tab, _, host| {
        choose(tab, "broken");
        send(tab, "hi");
        tab.wait("document.querySelectorAll('.note.bad').length", 1);
        tab.wait(QUIET, true);
        choose(tab, "plain");
        act(tab, "assistant", "Try again");
        tab.wait(ANSWER, "Hello! How can I help you?");
        tab.wait(QUIET, true);
        // A model that is deleted meanwhile is named by the error.
        let runtime = tokio::runtime::Handle::current();
        let (status, _) =
            runtime.block_on(host.text(Method::DELETE, "/api/delete", r#"{"model":"plain"}"#));
        assert_eq!(status, 200);
        send(tab, "again");
        tab.wait(NOTES, "model 'plain:latest' not found");
        tab.errors
            .retain(|error| !error.contains("status of 404") && !error.contains("status of 500"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_shows_all_without_scrolling_sideways() {
    let answer = "A long line: abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\n\n\
        ```rust\nlet a_very_long_line_of_code = that_does_not_fit_on_the_screen_of_a_phone(argument, argument);\n```\n\n\
        | a | b | c | d |\n|---|---|---|---|\n| some words here | some more words | and some more of them | the end |";
    with(saying(answer), |tab, url, _| {
        tab.width(360);
        choose(tab, "plain");
        send(
            tab,
            "a_long_word_that_has_no_place_to_break_in_it_at_all_and_goes_on_for_a_while",
        );
        tab.wait(QUIET, true);
        tab.wait("document.querySelectorAll('figure').length", 1);
        for pane in ["", "compare", "models", "machine"] {
            go(tab, url, pane);
            for scheme in ["dark", "light"] {
                tab.colours(scheme);
                tab.picture(&format!("app-phone-{pane}-{scheme}"));
            }
            assert_eq!(
                tab.eval("document.documentElement.scrollWidth"),
                360,
                "{pane}"
            );
            assert_eq!(tab.eval(OUTSIDE), "", "{pane}");
        }
        // The menu.
        assert_eq!(
            tab.eval("getComputedStyle(document.querySelector('nav')).visibility"),
            "hidden"
        );
        click(tab, ".menu-button");
        tab.wait(
            "getComputedStyle(document.querySelector('nav')).visibility",
            "visible",
        );
        tab.wait("document.querySelector('main').inert", true);
        tab.wait(
            "document.querySelector('nav').getBoundingClientRect().left",
            0,
        );
        tab.picture("app-phone-menu");
        tab.press("Escape");
        tab.wait("document.querySelector('main').inert", false);
        click(tab, ".menu-button");
        click(tab, "#chats a");
        tab.wait("document.querySelectorAll('figure').length", 1);
        click(tab, "#options");
        tab.wait(DIALOG, "Options of this conversation");
        tab.picture("app-phone-options");
        assert_eq!(tab.eval(OUTSIDE), "");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_is_reached_with_the_keyboard() {
    with(rules(), |tab, _, _| {
        choose(tab, "plain");
        send(tab, "the first");
        tab.wait(ANSWER, "One, and code.");
        tab.wait(QUIET, true);
        tab.wait("document.querySelectorAll('#chats a').length", 1);
        tab.eval("document.activeElement.blur(); document.querySelector('.skip').focus()");
        let mut seen = Vec::new();
        for _ in 0..40 {
            let name = "(() => { const it = document.activeElement; return it.id || it.getAttribute('aria-label') || \
                it.textContent.trim().slice(0, 30); })()";
            let visible = "(() => { const it = document.activeElement, style = getComputedStyle(it.matches('#prompt') ? it.form : it); \
                return it === document.body || (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none'; })()";
            assert_eq!(tab.eval(visible), true, "{}", tab.eval(name));
            seen.push(tab.eval(name).as_str().unwrap().to_owned());
            tab.press("Tab");
        }
        for wanted in ["new", "import", "export-all", "to-compare", "to-models", "Keyboard (?)", "theme", "model", "options", "More",
            "talk", "Copy", "Edit", "Try again", "prompt", "send", "Rename the first", "Delete the first"] {
            assert!(seen.iter().any(|it| it == wanted), "{wanted} is not among {seen:?}");
        }
        tab.eval("document.activeElement.blur()");
        tab.press("?");
        tab.wait(DIALOG, "Keyboard");
        tab.press("Escape");
        tab.wait(DIALOG, "");
        tab.press("/");
        tab.wait("document.activeElement.id", "prompt");
        // A line more, and not sent.
        tab.write("a");
        tab.call("Input.dispatchKeyEvent", json!({"type": "keyDown", "key": "Enter", "text": "\r", "modifiers": 8, "windowsVirtualKeyCode": 13}));
        tab.write("b");
        tab.wait("document.querySelector('#prompt').value", "a\nb");
        tab.wait("document.querySelectorAll('.message').length", 2);
    })
    .await;
}

/// Texts whose contrast to what is behind them is below what WCAG asks for (AA).
const PALE: &str = "(() => { const parse = (colour) => { const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number); return colour.startsWith('color(') ? [r * 255, g * 255, b * 255, a] : [r, g, b, a]; }; \
    const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map((it) => { it /= 255; return it <= 0.04045 ? it / 12.92 : ((it + 0.055) / 1.055) ** 2.4; }); return 0.2126 * x + 0.7152 * y + 0.0722 * z; }; \
    const behind = (it) => { for (; it; it = it.parentElement) { const colour = parse(getComputedStyle(it).backgroundColor); if (colour[3] > 0.99) return colour; } return [255, 255, 255]; }; \
    const pale = []; for (const it of document.querySelectorAll('body *')) { \
      if (![...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim()) || !it.checkVisibility({ visibilityProperty: true, opacityProperty: true }) || it.closest('.unseen, .skip, :disabled')) continue; \
      const [a, b] = [light(parse(getComputedStyle(it).color)), light(behind(it))].sort((a, b) => b - a); const ratio = (a + 0.05) / (b + 0.05); \
      if (ratio < 4.5) pale.push(it.tagName + '.' + it.className + ' ' + it.textContent.slice(0, 20) + ' ' + ratio.toFixed(2)); } return pale.join(); })()";

#[tokio::test(flavor = "multi_thread")]
async fn names_landmarks_and_contrast_are_there() {
    let sample = include_str!("../fixtures/sample.md");
    with(saying(sample), |tab, url, _| {
        tab.call("Accessibility.enable", json!({}));
        choose(tab, "plain");
        send(tab, "a question");
        tab.wait(QUIET, true);
        for pane in ["", "compare", "models", "machine"] {
            go(tab, url, pane);
            for scheme in ["light", "dark"] {
                tab.colours(scheme);
                tab.picture(&format!("app-{pane}-{scheme}"));
                assert_eq!(tab.eval(PALE), "", "{pane} {scheme}");
            }
            let tree = tab.call("Accessibility.getFullAXTree", json!({}));
            let mut roles = Vec::new();
            for node in tree["nodes"].as_array().unwrap() {
                let role = node["role"]["value"].as_str().unwrap_or_default();
                roles.push(role.to_owned());
                let name = node["name"]["value"].as_str().unwrap_or_default();
                let needs_name = ["button", "link", "textbox", "searchbox", "combobox", "checkbox", "progressbar", "image", "article", "navigation"];
                assert!(
                    node["ignored"] == true || !needs_name.contains(&role) || !name.trim().is_empty(),
                    "{pane}: {node}"
                );
            }
            for landmark in ["main", "navigation"] {
                assert_eq!(roles.iter().filter(|it| *it == landmark).count(), 1, "{pane} {landmark}");
            }
            assert_eq!(tab.eval("new Set([...document.querySelectorAll('[id]')].map((it) => it.id)).size === document.querySelectorAll('[id]').length"), true);
        }
        let reduced = json!([{"name": "prefers-reduced-motion", "value": "reduce"}]);
        tab.call("Emulation.setEmulatedMedia", json!({ "features": reduced }));
        assert_eq!(tab.eval("getComputedStyle(document.querySelector('nav')).transitionDuration"), "0s");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn axe_finds_nothing_to_mend() {
    let clients =
        std::env::var_os("TEST_CLIENTS").expect("axe-core is missing, which `tests/run` installs");
    let path = std::path::Path::new(&clients).join("node_modules/axe-core/axe.min.js");
    let axe = std::fs::read_to_string(path).unwrap();
    let found = "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => \
        violations.map((it) => it.id + ': ' + it.nodes.map((node) => node.html.slice(0, 120)).join(' | ')).join('\\n'))";
    let sample = include_str!("../fixtures/sample.md");
    let settings = Settings {
        catalogue: Some(catalogue()),
        ..settings()
    };
    let host = host_with(settings, || FakeOptions {
        answer: Answer::Text(sample.into()),
        ..FakeOptions::default()
    });
    with(host, move |tab, url, _| {
        choose(tab, "plain");
        send(tab, "a question");
        tab.wait("document.querySelectorAll('figure').length > 0", true);
        tab.wait(QUIET, true);
        let check = |tab: &mut Tab, what: &str| {
            tab.eval(&axe);
            for scheme in ["light", "dark"] {
                tab.colours(scheme);
                assert_eq!(tab.eval(found), "", "{what} {scheme}");
            }
        };
        for pane in ["", "compare", "models", "machine"] {
            go(tab, url, pane);
            check(tab, pane);
        }
        go(tab, url, "models");
        click(tab, ".find summary");
        tab.wait("document.querySelectorAll('.found li').length", 2);
        check(tab, "find");
        tab.eval("[...document.querySelectorAll('.models button')].find((it) => it.textContent === 'Variant').click()");
        tab.wait(&format!("({DIALOG}).startsWith('Variant of ')"), true);
        check(tab, "variant");
        tab.press("Escape");
        tab.wait(DIALOG, "");
        click(tab, "[aria-label='Keyboard (?)']");
        tab.wait(DIALOG, "Keyboard");
        check(tab, "keys");
        tab.press("Escape");
        tab.width(360);
        tab.goto(url);
        click(tab, ".menu-button");
        tab.wait("document.querySelector('main').inert", true);
        check(tab, "menu of a phone");
    })
    .await;
}

/// Models that nobody has: a small one, one that needs too much memory, one that does not run.
fn catalogue() -> CatalogueSource {
    let model = |name: &str, about: &str, gigabytes: u64| CatalogueModel {
        name: name.into(),
        bytes: gigabytes * 1_000_000_000,
        memory_bytes: gigabytes * 1_200_000_000,
        runs: true,
        why_not: None,
        fits: gigabytes < 10,
        suggested: gigabytes < 10,
        tokens_per_second: (about != "search").then_some(123.4 / gigabytes as f64),
        about: about.to_owned(),
        capabilities: vec!["tools".to_owned()],
        context: Some(32_768),
        architecture: Some("llama".to_owned()),
        licence: Some("MIT".to_owned()),
    };
    let mut strange = model("strange:1b", "chat", 1);
    strange.runs = false;
    strange.suggested = false;
    strange.why_not = Some("of no known kind");
    let models = vec![
        model("small:3b", "code", 3),
        model("vectors:1b", "search", 1),
        model("large:70b", "code", 70),
        strange,
    ];
    CatalogueSource::new(move || Catalogue {
        date: "2026-11",
        refreshed: None,
        memory_bytes: Some(16_000_000_000),
        bytes_per_second: 2e10,
        models: models.clone(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_found_for_the_machine() {
    let settings = Settings {
        catalogue: Some(catalogue()),
        ..settings()
    };
    with(host_with(settings, FakeOptions::default), |tab, url, _| {
        go(tab, url, "models");
        click(tab, ".find summary");
        let rows = "[...document.querySelectorAll('.found li p')].map((it) => it.textContent.split(' · ')[1]).join('; ')";
        tab.wait(rows, "about 41 tok/s here; fits");
        tab.eval("document.querySelector('#find-model').focus()");
        tab.write("CODE tools");
        tab.wait(rows, "about 41 tok/s here; Needs 84.0 GB of memory");
        tab.wait("document.querySelector('.find .hint').textContent.startsWith('2 sizes of models, for 16.0 GB of memory')", true);
        tab.picture("app-find");
        tab.eval("document.querySelector('#find-model').value = ''");
        tab.write("strange");
        tab.wait(rows, "Does not run yet: of no known kind");
        tab.wait("document.querySelector('.found button').disabled", true);
        tab.eval("document.querySelector('#find-model').value = ''");
        tab.write("small");
        tab.wait(rows, "about 41 tok/s here");
        // There is no registry of this name here: what counts is that it is asked for.
        tab.eval("document.querySelector('#pull-insecure').checked = false");
        click(tab, ".found button");
        tab.wait("document.querySelector('.pulls strong')?.textContent ?? ''", "small:3b");
    })
    .await;
    // A server without a list says so.
    with(host(), |tab, url, _| {
        tab.goto(&format!("{url}#/models"));
        tab.wait("document.querySelectorAll('.models li').length > 6", true);
        tab.eval("fetch = ((old) => (path, ...more) => path === 'api/catalogue' ? Promise.resolve(new Response('{\"error\": \"no catalogue\"}', {status: 404})) : old(path, ...more))(fetch)");
        click(tab, ".find summary");
        tab.wait("document.querySelector('.find .hint').textContent", "no catalogue");
    })
    .await;
}

#[tokio::test]
async fn the_catalogue_is_for_those_who_manage() {
    let of = async |settings: Settings, key: &str| {
        let host = host_with(settings, FakeOptions::default);
        let headers = [("x-api-key", key)];
        host.send(Method::GET, "/api/catalogue", &headers, "").await
    };
    let with_list = Settings {
        catalogue: Some(catalogue()),
        ..with_keys()
    };
    assert_eq!(of(with_list.clone(), "chatter").await.status(), 403);
    let response = of(with_list, "keeper").await;
    assert_eq!(response.status(), 200);
    let list: Value = serde_json::from_slice(&bytes(response).await).unwrap();
    assert_eq!(list["models"][0]["name"], "small:3b");
    assert_eq!(list["models"][3]["why_not"], "of no known kind");
    assert_eq!(of(with_keys(), "keeper").await.status(), 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn variants_share_the_weights() {
    with(host(), |tab, url, _| {
        go(tab, url, "models");
        let variant = "[...document.querySelectorAll('.models li')].find((it) => it.querySelector('h3').textContent.startsWith('plain')).querySelectorAll('button')";
        tab.eval(&format!("[...{variant}].find((it) => it.textContent === 'Variant').click()"));
        tab.wait(DIALOG, "Variant of plain");
        tab.wait("document.activeElement.placeholder", "plain-reviewer");
        tab.write("terse");
        tab.eval("document.querySelector('#dialog textarea').value = 'Be brief.'");
        tab.eval("document.querySelector('#dialog [type=number]').value = '0.25'");
        tab.picture("app-variant");
        click(tab, "#dialog button.main");
        tab.wait("[...document.querySelectorAll('.models h3')].some((it) => it.textContent === 'terse')", true);
        let shown = tab.eval("fetch('api/show', {method: 'POST', body: '{\"model\":\"terse\"}'}).then((it) => it.json()).then((it) => it.system + '|' + it.parameters)");
        let shown = shown.as_str().unwrap();
        assert!(shown.starts_with("Be brief.|") && shown.contains("temperature") && shown.contains("0.25"), "{shown}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_models_answer_side_by_side() {
    with(rules(), |tab, url, _| {
        go(tab, url, "compare");
        tab.eval("(() => { const [one, two] = document.querySelectorAll('.side select'); \
            for (const [it, name] of [[one, 'plain:latest'], [two, 'speaker:latest']]) { it.value = name; it.dispatchEvent(new Event('change')); } \
            document.querySelector('.compare textarea').focus(); })()");
        tab.write("the first");
        tab.press("Enter");
        let said = "[...document.querySelectorAll('.side')].map((it) => [...it.querySelectorAll('.assistant')].map((it) => it.getAttribute('aria-label') + ': ' + it.querySelector('.text').textContent)).join('; ')";
        tab.wait(said, "plain: One, and code.; speaker: One, and code.");
        tab.wait("document.querySelectorAll('.side .stats').length", 2);
        tab.picture("app-compare");
        tab.eval("document.querySelector('.compare textarea').focus()");
        tab.write("the second");
        tab.press("Enter");
        tab.wait("[...document.querySelectorAll('.side')].map((it) => it.querySelectorAll('.message').length).join()", "4,4");
        tab.wait("document.querySelector('#send-both').getAttribute('aria-label')", "Send to both");
        // Nothing is kept but what goes on.
        tab.wait(TITLES, "");
        tab.eval("document.querySelectorAll('.side .row button')[1].click()");
        tab.wait("document.querySelector('#model')?.value ?? ''", "speaker:latest");
        tab.wait("document.querySelectorAll('.message').length", 4);
        tab.wait(TITLES, "the first");
        tab.eval("location.hash = '#/compare'");
        tab.wait("[...document.querySelectorAll('.side')].map((it) => it.querySelectorAll('.message').length).join()", "4,0");
        tab.eval("document.querySelector('.compare [aria-label=\"Begin anew\"]').click()");
        tab.wait("document.querySelectorAll('.message').length", 0);
    })
    .await;
    with(slow(Answer::Endless), |tab, url, _| {
        go(tab, url, "compare");
        tab.eval("document.querySelector('.compare textarea').focus()");
        tab.write("go on");
        tab.press("Enter");
        tab.wait("[...document.querySelectorAll('.side .assistant .text')].filter((it) => it.textContent.length > 20).length", 2);
        tab.press("Escape");
        tab.wait(NOTES, "Stopped,Stopped");
        tab.wait("document.querySelector('#send-both').getAttribute('aria-label')", "Send to both");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_requests_are_told_to_those_who_manage() {
    let host = host_with(with_keys(), FakeOptions::default);
    let ask = async |method, path: &str, key| {
        let body = r#"{"model": "plain", "prompt": "a secret", "stream": false}"#;
        let headers = [("x-api-key", key)];
        let response = host.send(method, path, &headers, body).await;
        let status = response.status();
        (status, bytes(response).await)
    };
    ask(Method::POST, "/api/generate?why=secret", "chatter").await;
    ask(Method::GET, "/api/ps", "chatter").await;
    ask(Method::GET, "/health", "chatter").await;
    ask(Method::GET, "/api/tags", "wrong").await;
    let long = format!("/api/{}", "x".repeat(5000));
    ask(Method::GET, &long, "keeper").await;
    assert_eq!(ask(Method::GET, "/api/requests", "chatter").await.0, 403);
    let (status, body) = ask(Method::GET, "/api/requests", "keeper").await;
    assert_eq!(status, 200);
    assert!(!String::from_utf8_lossy(&body).contains("secret"));
    let found: Value = serde_json::from_slice(&body).unwrap();
    let row = |n: usize| {
        let it = &found["requests"][n];
        (it["path"].clone(), it["status"].clone(), it["key"].clone())
    };
    assert_eq!(row(0), (json!(long[..200]), json!(404), json!("keeper")));
    assert_eq!(row(1), (json!("/api/tags"), json!(401), Value::Null));
    let answered = (json!("/api/generate"), json!(200), json!("chatter"));
    assert_eq!(row(2), answered);
    assert_eq!(found["requests"].as_array().unwrap().len(), 3);
    for _ in 0..250 {
        ask(Method::GET, "/api/tags", "keeper").await;
    }
    let (_, body) = ask(Method::GET, "/api/requests", "keeper").await;
    let found: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(found["requests"].as_array().unwrap().len(), 200);

    with(rules(), |tab, url, _| {
        choose(tab, "plain");
        send(tab, "the first");
        tab.wait(ANSWER, "One, and code.");
        tab.wait(QUIET, true);
        go(tab, url, "machine");
        tab.wait("[...document.querySelectorAll('.table')].at(-1).querySelector('tbody th + td')?.textContent ?? ''", "POST /api/chat");
    })
    .await;
}
