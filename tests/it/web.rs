//! Journeys through the web app of the real program, in a real browser: with the built-in model, and with an engine
//! behind the server that does as it is told. No journey may leave a message on the console.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{Router, body::Body, response::IntoResponse as _, routing::any};
use futures_util::{StreamExt as _, stream};
use llmsrv_gguf::{Metadata, TensorType, Writer};
use serde_json::{Value, json};

use crate::{
    app::{
        ANSWER, DIALOG, LAST, NOTES, NOTICE, OUTSIDE, QUIET, TITLES, act, choose, click, go, send,
    },
    registry::{
        fake::{Act, Fake},
        serve_model,
    },
    tab::Tab,
    util::{Sandbox, Server, TIMEOUT},
};

const BUILT_IN: &str = "llmsrv-tiny-code";
/// The model of the other engine.
const TALKER: &str = "talker";
const REVERSE: &str = "Write a Python function that reverses a string.";

/// An engine behind the server. It says what it is asked, and more at some words.
#[derive(Clone, Default)]
struct Engine {
    asked: Arc<Mutex<Vec<Value>>>,
    /// Answers that their reader left.
    left: Arc<AtomicUsize>,
}

/// Counts an answer as left, unless it came to its end.
struct Leaves(Arc<AtomicUsize>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Engine {
    async fn start(&self) -> String {
        let engine = self.clone();
        let router = Router::new().fallback(any(move |body: String| {
            let engine = engine.clone();
            async move { engine.answer(&body) }
        }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{host}/v1")
    }

    fn answer(&self, body: &str) -> axum::response::Response {
        let Ok(body) = serde_json::from_str::<Value>(body) else {
            // Is it there?
            return "{}".into_response();
        };
        let message = body["messages"].as_array().unwrap().last().unwrap().clone();
        let has_tools = body["tools"].is_array();
        self.asked.lock().unwrap().push(body);
        let said = message["content"].as_str().unwrap_or_default().to_owned();
        if said.contains("for ever") {
            let leaves = Leaves(self.left.clone());
            let words = stream::unfold((0_u32, leaves), |(n, leaves)| async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let event = content(&format!("word{n} "));
                Some((Ok::<_, Infallible>(event), (n + 1, leaves)))
            });
            return Body::from_stream(words).into_response();
        }
        if said.contains("for an hour") {
            // As many words as an hour has at a hundred in a second, as fast as they are taken.
            let words = stream::iter((0..360_000).map(|n| {
                Ok::<_, Infallible>(match n % 200 {
                    199 => content("\n\n"),
                    _ => content(&format!("word{n} ")),
                })
            }));
            let end = json!({"choices": [{"delta": {}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 360_000}});
            let end = stream::iter([Ok(event(&end) + "data: [DONE]\n\n")]);
            return Body::from_stream(words.chain(end)).into_response();
        }
        let delta = if message["role"] == "tool" {
            json!({"content": format!("It is {said}.")})
        } else if has_tools {
            json!({"tool_calls": [{"index": 0, "id": "call-1", "type": "function",
                "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}}]})
        } else {
            json!({"content": said})
        };
        let end = json!({"choices": [{"delta": {}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
        let text = event(&json!({"choices": [{"delta": delta}]})) + &event(&end);
        (text + "data: [DONE]\n\n").into_response()
    }

    fn last(&self) -> Value {
        self.asked.lock().unwrap().last().unwrap().clone()
    }
}

fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

fn content(text: &str) -> String {
    event(&json!({"choices": [{"delta": {"content": text}}]}))
}

/// A server of the real program, and what belongs to it.
struct Place {
    sandbox: Sandbox,
    /// `None` while none runs.
    running: Option<Server>,
    engine: Engine,
    /// Where the app is.
    url: String,
    runtime: tokio::runtime::Handle,
}

impl Place {
    /// Begins a server once `prepare` has put things into its home.
    async fn new(prepare: impl FnOnce(&Sandbox), env: &[(&str, &str)]) -> Place {
        let (sandbox, engine) = (Sandbox::new(), Engine::default());
        let folder = sandbox.path().join("config/llmsrv");
        fs::create_dir_all(&folder).unwrap();
        let url = engine.start().await;
        let table = format!("[upstream.far]\nurl = \"{url}\"\nmodels = {{ {TALKER} = \"x\" }}\n");
        fs::write(folder.join("config.toml"), table).unwrap();
        prepare(&sandbox);
        let server = sandbox.serve_with(&[], env);
        let url = format!("{}/", server.url);
        let runtime = tokio::runtime::Handle::current();
        Place {
            sandbox,
            running: Some(server),
            engine,
            url,
            runtime,
        }
    }

    fn server(&self) -> &Server {
        self.running.as_ref().unwrap()
    }

    /// Ends the server.
    fn end(&mut self, signal: &str) {
        self.running.take().unwrap().end(signal);
    }

    /// Begins another server where the first one was.
    fn begin(&mut self) {
        let host = self.url.strip_prefix("http://").unwrap();
        let env = [("LLMSRV_HOST", host.trim_end_matches('/'))];
        let server = self.sandbox.serve_with(&[], &env);
        assert_eq!(format!("{}/", server.url), self.url);
        self.running = Some(server);
    }

    /// What the server says at a path.
    fn get(&self, path: &str) -> Value {
        self.runtime.block_on(self.server().get(path)).ok()
    }

    /// The names of the models, as the command line lists them.
    fn models(&self) -> String {
        self.sandbox.run(&["list"]).ok().stdout
    }

    /// Goes through the app in a new browser.
    async fn visit(mut self, test: impl FnOnce(&mut Tab, &mut Place) + Send + 'static) {
        let visit = move || {
            let mut tab = Tab::open();
            tab.goto(&self.url);
            test(&mut tab, &mut self);
            assert_quiet(&mut tab);
        };
        tokio::task::spawn_blocking(visit).await.unwrap();
    }
}

/// Nothing was written to the console of a tab.
fn assert_quiet(tab: &mut Tab) {
    // What came before this answer has been heard.
    tab.eval("0");
    assert!(tab.errors.is_empty(), "{:#?}", tab.errors);
}

/// Goes through the app of a new server.
async fn journey(test: impl FnOnce(&mut Tab, &mut Place) + Send + 'static) {
    Place::new(|_| {}, &[]).await.visit(test).await;
}

/// Says something to a model and waits until it has answered.
fn ask(tab: &mut Tab, text: &str) {
    let before = "document.querySelectorAll('.message.assistant').length";
    let n = tab.eval(before).as_i64().unwrap();
    send(tab, text);
    tab.wait(before, n + 1);
    tab.wait(QUIET, true);
}

/// Clicks the button of this text below an element.
fn press(tab: &mut Tab, within: &str, label: &str) {
    let button = format!(
        "[...document.querySelectorAll({within:?} + ' button')].find((it) => it.textContent === {label:?})"
    );
    tab.wait(&format!("Boolean({button})"), true);
    tab.eval(&format!("{button}.click()"));
}

/// The row of a model in the list.
fn row(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('.models li')].find((it) => it.querySelector('h3')?.firstChild.textContent === {name:?})"
    )
}

/// Clicks a button in the row of a model.
fn on_model(tab: &mut Tab, name: &str, label: &str) {
    let row = row(name);
    let button = format!(
        "[...({row}?.querySelectorAll('button') ?? [])].find((it) => it.textContent === {label:?})"
    );
    tab.wait(&format!("Boolean({button})"), true);
    tab.eval(&format!("{button}.click()"));
}

fn models_pane(tab: &mut Tab) {
    tab.eval("location.hash = '#/models'");
    tab.wait(&format!("Boolean({})", row(TALKER)), true);
}

/// Hands files to a field for files.
fn give_file(tab: &mut Tab, selector: &str, path: &Path) {
    let document = tab.call("DOM.getDocument", json!({}));
    let root = document["root"]["nodeId"].clone();
    let field = json!({"nodeId": root, "selector": selector});
    let field = tab.call("DOM.querySelector", field);
    let files = json!({"nodeId": field["nodeId"], "files": [path.to_str().unwrap()]});
    tab.call("DOM.setFileInputFiles", files);
}

/// Waits until something that is not on the page is so.
#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

// ---- talking ----

#[tokio::test(flavor = "multi_thread")]
async fn the_first_visit_ends_with_an_answer() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve();
    let text = server.get("/").await;
    assert_eq!(
        (text.status, text.text.as_str()),
        (200, "Ollama is running")
    );
    let url = server.url.clone();
    tokio::task::spawn_blocking(move || {
        let mut tab = Tab::open();
        tab.goto(&format!("{url}/"));
        tab.wait(
            "document.querySelector('.empty h2')?.textContent ?? ''",
            "Ask llmsrv-tiny-code",
        );
        tab.wait(
            "document.querySelector('#model').selectedOptions[0].textContent",
            "llmsrv-tiny-code (default)",
        );
        tab.picture("app-first");
        tab.write(REVERSE);
        tab.press("Enter");
        tab.wait(
            "document.querySelector('.message.assistant .stats')?.textContent.includes('tok/s') ?? false",
            true,
        );
        tab.wait(
            "/def /.test(document.querySelector('.message.assistant').textContent)",
            true,
        );
        tab.wait(
            "/ of 1,024 tokens$/.test(document.querySelector('#meter').textContent)",
            true,
        );
        tab.picture("app-answer");
        // How soon the page is there, from loopback.
        tab.call("Page.reload", json!({"ignoreCache": true}));
        tab.wait("document.querySelectorAll('.message').length", 2);
        let paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1";
        println!("first paint after {} ms", tab.eval(paint));
        assert_quiet(&mut tab);
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_of_the_empty_page_is_answered() {
    journey(|tab, _| {
        tab.wait("document.querySelectorAll('.ideas button').length", 3);
        press(tab, ".ideas", REVERSE);
        tab.wait(&format!("({ANSWER}).includes('def ')"), true);
        tab.wait(QUIET, true);
        tab.wait(TITLES, REVERSE);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_goes_on_after_a_reload_and_after_the_server_began_anew() {
    journey(|tab, place| {
        choose(tab, BUILT_IN);
        ask(tab, REVERSE);
        let answer = tab.eval(ANSWER);
        tab.call("Page.reload", json!({}));
        tab.wait(ANSWER, answer.clone());
        // The page has asked for all it needs.
        tab.wait(
            "document.querySelector('#version').textContent !== ''",
            true,
        );
        place.end("-TERM");
        place.begin();
        ask(tab, "Hello!");
        tab.wait("document.querySelectorAll('.message').length", 4);
        tab.wait(NOTES, "");
        assert_ne!(tab.eval(ANSWER), "");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_told_and_found_again() {
    journey(|tab, place| {
        choose(tab, TALKER);
        ask(tab, "one");
        place.end("-KILL");
        ask(tab, "two");
        tab.wait("document.querySelectorAll('.note.bad').length", 1);
        place.begin();
        act(tab, "assistant", "Try again");
        tab.wait(ANSWER, "two");
        tab.wait(QUIET, true);
        tab.errors
            .retain(|error| !error.contains("ERR_CONNECTION_"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_stopped_in_mid_stream() {
    journey(|tab, place| {
        choose(tab, TALKER);
        send(tab, "for ever");
        tab.wait(&format!("({ANSWER}).includes('word9')"), true);
        assert_eq!(place.engine.left.load(Ordering::SeqCst), 0);
        tab.press("Escape");
        tab.wait(QUIET, true);
        tab.wait(NOTES, "Stopped");
        let text = tab.eval(ANSWER);
        until("the engine stops, too", || {
            place.engine.left.load(Ordering::SeqCst) == 1
        });
        tab.call("Page.reload", json!({}));
        tab.wait(ANSWER, text);
        tab.wait(NOTES, "Stopped");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_built_in_model_is_stopped_by_the_button() {
    journey(|tab, place| {
        choose(tab, BUILT_IN);
        ask(tab, "Hello!");
        // What it would say for seconds, whatever it would like to say.
        tab.eval(
            "fetch = ((old) => (path, more) => old(path, path !== 'api/chat' ? more : { ...more, body: JSON.stringify({ \
             ...JSON.parse(more.body), format: { type: 'array', items: { type: 'integer' }, minItems: 300 } }) }))(fetch)",
        );
        send(tab, "Count.");
        tab.wait(&format!("({ANSWER}).length > 5"), true);
        click(tab, "#send[aria-label='Stop']");
        tab.wait(QUIET, true);
        tab.wait(NOTES, "Stopped");
        until("nothing runs", || {
            let figures = place.runtime.block_on(place.server().get("/metrics")).text;
            let mut lines = figures.lines();
            lines.any(|it| it.starts_with("llmsrv_model_sequences") && it.contains("running") && it.ends_with(" 0"))
        });
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_reload_cuts_off_is_kept_and_gone_on_from() {
    journey(|tab, place| {
        choose(tab, TALKER);
        send(tab, "for ever");
        // It is kept every second or so.
        tab.wait(&format!("({ANSWER}).includes('word200')"), true);
        tab.call("Page.reload", json!({}));
        tab.wait(NOTES, "This answer is not finished.");
        assert_eq!(
            tab.eval(&format!("({ANSWER}).startsWith('word0 word1')")),
            true
        );
        until("the engine stops, too", || {
            place.engine.left.load(Ordering::SeqCst) == 1
        });
        ask(tab, "and now");
        tab.wait(ANSWER, "and now");
        let messages = place.engine.last()["messages"].clone();
        assert_eq!(messages.as_array().unwrap().len(), 3, "{messages}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_are_edited_and_answers_tried_again_in_branches() {
    journey(|tab, place| {
        choose(tab, TALKER);
        ask(tab, "one");
        act(tab, "assistant", "Try again");
        let of_answer = format!("{LAST}.querySelector('.branches')?.textContent ?? ''");
        tab.wait(&of_answer, "2/2");
        tab.wait(QUIET, true);
        act(tab, "user", "Edit");
        tab.eval("document.activeElement.select()");
        tab.write("two");
        tab.press("Enter");
        tab.wait(ANSWER, "two");
        tab.wait(QUIET, true);
        let messages = place.engine.last()["messages"].clone();
        assert_eq!(messages.as_array().unwrap().len(), 1, "{messages}");
        act(tab, "user", "Earlier version");
        tab.wait(ANSWER, "one");
        tab.wait(&of_answer, "2/2");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn options_reach_the_model() {
    journey(|tab, place| {
        choose(tab, TALKER);
        click(tab, "#options");
        tab.wait(DIALOG, "Options of this conversation");
        tab.write("Be brief.");
        for (name, value) in [
            ("temperature", "0.25"),
            ("num_predict", "77"),
            ("seed", "5"),
        ] {
            tab.eval(&format!(
                "document.querySelector('#dialog [name={name}]').value = '{value}'"
            ));
        }
        click(tab, "#dialog button.main");
        tab.wait(
            "document.querySelector('#options').classList.contains('changed')",
            true,
        );
        ask(tab, "hi");
        let asked = place.engine.last();
        let system = json!({"role": "system", "content": "Be brief."});
        assert_eq!(asked["messages"][0], system, "{asked}");
        assert_eq!(asked["temperature"], 0.25, "{asked}");
        assert_eq!(asked["max_tokens"], 77, "{asked}");
        assert_eq!(asked["seed"], 5, "{asked}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_longest_answer_ends_where_it_was_told() {
    journey(|tab, _| {
        choose(tab, BUILT_IN);
        click(tab, "#options");
        tab.wait(DIALOG, "Options of this conversation");
        tab.eval("document.querySelector('#dialog [name=num_predict]').value = '3'");
        click(tab, "#dialog button.main");
        tab.wait(DIALOG, "");
        ask(tab, REVERSE);
        tab.wait(NOTES, "The answer reached its limit of tokens.");
        let stats = format!("{LAST}.querySelector('.stats').textContent.includes(' 3 tokens ')");
        tab.wait(&stats, true);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_is_called_and_its_result_written() {
    journey(|tab, place| {
        choose(tab, TALKER);
        click(tab, "#options");
        tab.wait(DIALOG, "Options of this conversation");
        let tool = r#"[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]"#;
        tab.eval(&format!(
            "(() => {{ const it = document.querySelector('#dialog [name=tools]'); it.value = {}; it.dispatchEvent(new Event('input')); }})()",
            json!(tool)
        ));
        click(tab, "#dialog button.main");
        tab.wait(DIALOG, "");
        send(tab, "the weather?");
        tab.wait("document.querySelector('.call strong')?.textContent ?? ''", "get_weather");
        tab.wait("JSON.parse(document.querySelector('.call pre').textContent).city", "Paris");
        tab.wait("document.querySelectorAll('.results textarea').length", 1);
        tab.eval("document.querySelector('.results textarea').focus()");
        tab.write("sunny");
        click(tab, ".results button");
        tab.wait(ANSWER, "It is sunny.");
        tab.wait(QUIET, true);
        let messages = place.engine.last()["messages"].clone();
        assert_eq!(messages[1]["tool_calls"][0]["function"]["name"], "get_weather", "{messages}");
        assert_eq!(messages[2]["tool_call_id"], messages[1]["tool_calls"][0]["id"], "{messages}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_model_says_stays_text() {
    journey(|tab, _| {
        let attack = "<img src=x onerror=\"document.title='evil'\"><script>document.title='evil'</script> \
            [a](javascript:document.title='evil') ![c](https://evil.example/p.png)\n\n```html\n</code></pre><img src=x>\n```\n";
        choose(tab, TALKER);
        ask(tab, attack);
        tab.wait(&format!("{LAST}.querySelectorAll('figure').length"), 1);
        let foreign = "document.querySelectorAll('main :is(img, script, iframe, object, style)').length";
        assert_eq!(tab.eval(foreign), 0);
        assert!(tab.eval(ANSWER).as_str().unwrap().contains("<img src=x onerror="));
        assert!(!tab.eval("document.title").as_str().unwrap().starts_with("evil"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn code_is_coloured_and_copied() {
    journey(|tab, place| {
        let granted = json!({"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"], "origin": place.server().url});
        tab.call("Browser.grantPermissions", granted);
        choose(tab, TALKER);
        ask(tab, "```rust\nfn main() {}\n```");
        tab.wait(&format!("{LAST}.querySelectorAll('figure code span').length > 0"), true);
        tab.call("Page.bringToFront", json!({}));
        click(tab, "figure button");
        tab.wait("navigator.clipboard.readText()", "fn main() {}");
    })
    .await;
}

// ---- images ----

/// An encoder for images of 28 by 28 pixels that gives rows as wide as the built-in model's embeddings.
fn eye() -> Vec<u8> {
    const WIDTH: u64 = 32;
    const OUT: u64 = 256;
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "clip");
    metadata.set("general.name", "eye");
    metadata.set("clip.has_vision_encoder", true);
    metadata.set("clip.projector_type", "mlp");
    metadata.set("clip.use_gelu", true);
    for (key, value) in [
        ("image_size", 28),
        ("patch_size", 7),
        ("embedding_length", WIDTH as u32),
        ("feed_forward_length", 48),
        ("block_count", 1),
        ("projection_dim", OUT as u32),
        ("attention.head_count", 4),
    ] {
        metadata.set(format!("clip.vision.{key}"), value);
    }
    metadata.set("clip.vision.attention.layer_norm_epsilon", 1e-5f32);
    metadata.set("clip.vision.image_mean", vec![0.5f32; 3]);
    metadata.set("clip.vision.image_std", vec![0.5f32; 3]);
    metadata.set("clip.vision.feature_layer", vec![1i32]);
    let mut tensors: Vec<(String, Vec<u64>)> = vec![
        ("v.patch_embd.weight".into(), vec![7, 7, 3, WIDTH]),
        ("v.patch_embd.bias".into(), vec![WIDTH]),
        ("v.position_embd.weight".into(), vec![WIDTH, 16]),
    ];
    let mut pair = |name: &str, n_rows: u64, n_cols: Option<u64>| {
        let shape = n_cols.into_iter().chain([n_rows]).collect();
        tensors.push((format!("{name}.weight"), shape));
        tensors.push((format!("{name}.bias"), vec![n_rows]));
    };
    for part in ["ln1", "ln2"] {
        pair(&format!("v.blk.0.{part}"), WIDTH, None);
    }
    for part in ["attn_q", "attn_k", "attn_v", "attn_out"] {
        pair(&format!("v.blk.0.{part}"), WIDTH, Some(WIDTH));
    }
    pair("v.blk.0.ffn_up", 48, Some(WIDTH));
    pair("v.blk.0.ffn_down", WIDTH, Some(48));
    pair("mm.0", OUT, Some(WIDTH));
    pair("mm.2", OUT, Some(OUT));
    let mut writer = Writer::new(metadata);
    for (name, shape) in tensors {
        let n: u64 = shape.iter().product();
        // Small numbers of both signs that differ.
        let values = (0..n).flat_map(|at| (0.05 * (at as f32 * 1.7).sin()).to_le_bytes());
        let bytes = values.collect();
        writer
            .tensor(&name, &shape, TensorType::F32, bytes)
            .unwrap();
    }
    writer.to_bytes().unwrap()
}

/// A server that also has the built-in model with an eye.
async fn with_eye() -> Place {
    let prepare = |sandbox: &Sandbox| {
        fs::write(sandbox.path().join("eye.gguf"), eye()).unwrap();
        fs::write(
            sandbox.path().join("Modelfile"),
            "FROM default\nFROM ./eye.gguf\n",
        )
        .unwrap();
        sandbox.run(&["create", "seer"]).ok();
    };
    Place::new(prepare, &[]).await
}

/// Pastes a teal picture of this size.
fn paste(tab: &mut Tab, width: u32, height: u32) {
    tab.eval(&format!(
        "(async () => {{ const canvas = document.createElement('canvas'); canvas.width = {width}; canvas.height = {height}; \
         const context = canvas.getContext('2d'); context.fillStyle = 'teal'; context.fillRect(0, 0, {width}, {height}); \
         const blob = await new Promise((done) => canvas.toBlob(done)); \
         const data = new DataTransfer(); data.items.add(new File([blob], 'a.png', {{ type: 'image/png' }})); \
         document.querySelector('#prompt').dispatchEvent(new ClipboardEvent('paste', {{ clipboardData: data, bubbles: true, cancelable: true }})); }})()"
    ));
}

/// Tokens of the context that are used.
const USED: &str = "parseInt(document.querySelector('#meter').textContent.replace(',', ''))";

#[tokio::test(flavor = "multi_thread")]
async fn a_pasted_image_is_looked_at() {
    let place = with_eye().await;
    place
        .visit(|tab, place| {
            choose(tab, "seer");
            let message = json!({"role": "user", "content": "what is it?"});
            let request = json!({"model": "seer", "stream": false, "messages": [message], "options": {"num_predict": 1}});
            let answer = place.runtime.block_on(place.server().post("/api/chat", &request));
            let without = answer.ok()["prompt_eval_count"].as_i64().unwrap();
            paste(tab, 3000, 30);
            tab.wait("document.querySelectorAll('#compose img').length", 1);
            // Larger than models look at: it was made smaller.
            tab.wait("document.querySelector('#compose img').naturalWidth", 2048);
            ask(tab, "what is it?");
            tab.wait(NOTES, "");
            tab.wait("document.querySelector('.message.user img').naturalWidth", 2048);
            // Sixteen rows of the image are in the prompt.
            let tokens = "parseInt(/(\\d+) tokens?/.exec([...document.querySelectorAll('.stats')].at(-1).textContent)[1])";
            let used = tab.eval(&format!("{USED} - {tokens}")).as_i64().unwrap();
            assert!(used >= without + 16, "{used} with it, {without} without");
            tab.call("Page.reload", json!({}));
            tab.wait("document.querySelector('.message.user img')?.naturalWidth ?? 0", 2048);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_a_file_is_chosen_and_removed() {
    let place = with_eye().await;
    place
        .visit(|tab, _| {
            choose(tab, "seer");
            tab.wait("document.querySelector('#attach').hidden", false);
            let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/web-light.png");
            for n in 1..=2 {
                give_file(tab, "#compose input[type=file]", &picture);
                tab.wait("document.querySelectorAll('#compose img').length", n);
            }
            click(tab, "[aria-label='Remove image 1']");
            tab.wait("document.querySelectorAll('#compose img').length", 1);
            ask(tab, "what is it?");
            tab.wait(NOTES, "");
            tab.wait("document.querySelectorAll('.message.user img').length", 1);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_eyes_takes_no_image() {
    journey(|tab, _| {
        choose(tab, BUILT_IN);
        paste(tab, 30, 30);
        tab.wait(
            NOTICE,
            "llmsrv-tiny-code cannot see images. Choose a model with “vision”.",
        );
        tab.wait("document.querySelectorAll('#compose img').length", 0);
        assert_eq!(tab.eval("document.querySelector('#attach').hidden"), true);
    })
    .await;
}

// ---- conversations ----

#[tokio::test(flavor = "multi_thread")]
async fn conversations_are_renamed_found_and_deleted() {
    journey(|tab, _| {
        choose(tab, TALKER);
        for n in 1..=8 {
            ask(tab, &format!("question {n}"));
            tab.eval("document.activeElement.blur()");
            tab.press("n");
            tab.wait("document.querySelectorAll('.message').length", 0);
        }
        tab.wait("document.querySelectorAll('#chats li').length", 8);
        click(tab, "[aria-label='Rename question 3']");
        tab.wait(DIALOG, "Rename the conversation");
        tab.eval("document.querySelector('#dialog input').select()");
        tab.write("The third");
        tab.press("Enter");
        tab.wait(&format!("({TITLES}).includes('The third')"), true);
        tab.eval("document.querySelector('#find').focus()");
        tab.write("THIRD");
        tab.wait(TITLES, "The third");
        click(tab, "[aria-label='Delete The third']");
        tab.wait(DIALOG, "Delete this conversation?");
        click(tab, "#dialog button.danger");
        tab.wait(TITLES, "");
        tab.call("Page.reload", json!({}));
        tab.wait("document.querySelectorAll('#chats li').length", 7);
        assert_eq!(tab.eval(&format!("({TITLES}).includes('third')")), false);
    })
    .await;
}

/// Waits for a file that the browser saves.
fn saved(folder: &Path, end: &str) -> PathBuf {
    let mut found = None;
    until(end, || {
        let mut entries = fs::read_dir(folder).unwrap();
        found = entries.find_map(|entry| {
            let path = entry.unwrap().path();
            path.extension().is_some_and(|it| it == end).then_some(path)
        });
        found.is_some()
    });
    found.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_move_to_another_browser() {
    journey(|tab, place| {
        let folder = place.sandbox.path().join("downloads");
        fs::create_dir(&folder).unwrap();
        let allowed = json!({"behavior": "allow", "downloadPath": folder.to_str().unwrap()});
        tab.call("Browser.setDownloadBehavior", allowed);
        choose(tab, BUILT_IN);
        ask(tab, REVERSE);
        let answer = tab.eval(ANSWER);
        click(tab, "#export-all");
        press(tab, ".menu", "Export as Markdown");
        let mut other = Tab::open();
        other.goto(&place.url);
        other.wait(
            "document.querySelectorAll('#model option').length > 0",
            true,
        );
        for (n, end) in ["json", "md"].into_iter().enumerate() {
            let file = saved(&folder, end);
            give_file(&mut other, "#import-file", &file);
            other.wait("document.querySelectorAll('#chats li').length", n + 1);
            other.wait(ANSWER, answer.clone());
            other.wait(
                "document.querySelector('.message.user .text').textContent",
                REVERSE,
            );
        }
        assert_quiet(&mut other);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tabs_show_the_same_conversation() {
    journey(|tab, place| {
        let mut other = tab.beside();
        other.goto(&place.url);
        choose(tab, TALKER);
        ask(tab, "one");
        other.wait(TITLES, "one");
        other.eval("document.querySelector('#chats a').click()");
        other.wait(ANSWER, "one");
        ask(tab, "two");
        other.wait(ANSWER, "two");
        ask(&mut other, "three");
        tab.wait(ANSWER, "three");
        tab.wait("document.querySelectorAll('.message').length", 6);
        assert_quiet(&mut other);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tabs_ask_at_the_same_time() {
    journey(|tab, place| {
        let mut other = tab.beside();
        other.goto(&place.url);
        choose(tab, TALKER);
        choose(&mut other, BUILT_IN);
        // Only what is in front is drawn while it comes.
        tab.call("Page.bringToFront", json!({}));
        send(tab, "for ever");
        tab.wait(&format!("({ANSWER}).includes('word1')"), true);
        let n = tab.eval(&format!("({ANSWER}).length")).as_i64().unwrap();
        other.call("Page.bringToFront", json!({}));
        ask(&mut other, REVERSE);
        other.wait(&format!("({ANSWER}).includes('def ')"), true);
        // The first one has gone on.
        tab.call("Page.bringToFront", json!({}));
        tab.wait(&format!("({ANSWER}).length > {n}"), true);
        tab.press("Escape");
        tab.wait(NOTES, "Stopped");
        for tab in [tab, &mut other] {
            tab.wait("document.querySelectorAll('#chats li').length", 2);
            assert_quiet(tab);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_messages_are_opened_and_gone_on_with() {
    journey(|tab, place| {
        let make = format!(
            "(async () => {{ const at = document.querySelector('script').src; \
             const talk = await import(at.replace('app.js', 'conversation.js')), store = await import(at.replace('app.js', 'store.js')); \
             const chat = talk.create('{TALKER}:latest'); \
             for (let n = 0; n < 10000; n++) talk.add(chat, chat.leaf, {{ role: n % 2 ? 'assistant' : 'user', content: 'Message **' + n + '**', model: '{TALKER}' }}); \
             await store.save(chat); location.hash = '#/c/' + chat.id; }})()"
        );
        choose(tab, TALKER);
        tab.eval(&make);
        tab.wait(ANSWER, "Message 9999");
        let at = tab.eval("location.href");
        let begun = Instant::now();
        tab.goto(&place.url);
        tab.goto(at.as_str().unwrap());
        tab.wait(ANSWER, "Message 9999");
        println!("10,000 messages are opened in {:?}", begun.elapsed());
        let built = "document.querySelectorAll('.message').length";
        let n = tab.eval(built).as_i64().unwrap();
        assert!(n < 200, "{n} are built at once");
        tab.eval("document.querySelector('#talk').scrollTop = 0");
        tab.wait(&format!("{built} > {n}"), true);
        send(tab, "the next");
        tab.wait(ANSWER, "the next");
        tab.wait(QUIET, true);
        let n = place.engine.last()["messages"].as_array().unwrap().len();
        assert_eq!(n, 10_001);
    })
    .await;
}

// ---- models ----

/// A server that pulls from a registry of this test, and the name of its one model. The weights take a while unless
/// the registry behaves.
async fn with_registry() -> (Place, Fake, String) {
    let fake = Fake::start().await;
    serve_model(&fake, &Sandbox::new());
    let name = format!("{}/a/b:t", fake.host);
    // Its weights are those of the built-in model, which must not be here then.
    let env = [("LLMSRV_REGISTRIES", ""), ("LLMSRV_NO_EMBEDDED", "1")];
    let place = Place::new(|_| {}, &env).await;
    (place, fake, name)
}

fn pull(tab: &mut Tab, name: &str) {
    tab.eval("document.querySelector('#pull-name').focus(); document.querySelector('#pull-insecure').checked = true");
    tab.write(name);
    tab.press("Enter");
}

const STATUS: &str = "document.querySelector('.pulls .status')?.textContent ?? ''";

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_over_a_breaking_connection_ends_whole() {
    let (place, fake, name) = with_registry().await;
    // Two connections break, and then the registry refuses.
    fake.hook(|seen| match (seen.is_blob(), seen.before) {
        (true, 0..2) => Act::Cut(200_000),
        (true, _) => Act::status(403),
        (false, _) => Act::Normal,
    });
    place
        .visit(move |tab, place| {
            models_pane(tab);
            pull(tab, &name);
            tab.wait("document.querySelectorAll('.pulls .status.bad').length", 1);
            assert!(!place.models().contains("a/b"));
            let (asked, sent) = (fake.bytes_asked(), fake.bytes_sent() as u64);
            fake.forget();
            fake.behave();
            press(tab, ".pulls", "Try again");
            tab.wait(NOTICE, format!("{name} is here."));
            // What had come was not asked for again.
            assert!(
                fake.bytes_asked() < asked,
                "{} after {asked}, of which {sent} came",
                fake.bytes_asked()
            );
            assert!(place.models().contains("a/b"));
            press(tab, "#notice", "Chat");
            tab.wait(
                "document.querySelector('#model')?.value ?? ''",
                name.clone(),
            );
            ask(tab, REVERSE);
            tab.wait(&format!("({ANSWER}).includes('def ')"), true);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_is_cancelled_and_goes_on() {
    let (place, fake, name) = with_registry().await;
    fake.hook(|seen| {
        if seen.is_blob() {
            Act::Drip(16 << 10, Duration::from_millis(40))
        } else {
            Act::Normal
        }
    });
    place
        .visit(move |tab, place| {
            models_pane(tab);
            pull(tab, &name);
            tab.wait(&format!("/ of 5.4 MB, .* left$/.test({STATUS})"), true);
            // It goes on while one looks elsewhere.
            tab.eval("location.hash = '#/'");
            tab.wait("document.querySelectorAll('.pulls').length", 0);
            models_pane(tab);
            tab.wait(&format!("/ of 5.4 MB/.test({STATUS})"), true);
            click(tab, ".pulls .icon");
            tab.wait(&format!("({STATUS}).startsWith('Cancelled')"), true);
            let asked = fake.bytes_asked();
            fake.forget();
            fake.behave();
            press(tab, ".pulls", "Try again");
            tab.wait(NOTICE, format!("{name} is here."));
            assert!(
                fake.bytes_asked() < asked,
                "{} after {asked}",
                fake.bytes_asked()
            );
            assert!(place.models().contains("a/b"));
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_no_registry_has_is_told() {
    let (place, fake, _) = with_registry().await;
    place
        .visit(move |tab, _| {
            models_pane(tab);
            pull(tab, &format!("{}/a/none:t", fake.host));
            tab.wait(
                &format!("({STATUS}).startsWith('pull model manifest: ')"),
                true,
            );
            click(tab, ".pulls .icon");
            tab.wait("document.querySelectorAll('.pulls li').length", 0);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_deleted_after_a_question() {
    let prepare = |sandbox: &Sandbox| drop(sandbox.run(&["cp", "default", "mine"]).ok());
    let place = Place::new(prepare, &[]).await;
    place
        .visit(|tab, place| {
            models_pane(tab);
            on_model(tab, "mine", "Delete");
            tab.wait(DIALOG, "Delete mine?");
            press(tab, "#dialog", "Cancel");
            tab.wait(DIALOG, "");
            assert!(place.models().contains("mine"));
            on_model(tab, "mine", "Delete");
            tab.wait(DIALOG, "Delete mine?");
            click(tab, "#dialog button.danger");
            tab.wait(&format!("Boolean({})", row("mine")), false);
            assert!(!place.models().contains("mine"));
            // The weights are those of the built-in model, which stays.
            tab.eval("location.hash = '#/'");
            choose(tab, BUILT_IN);
            ask(tab, REVERSE);
            tab.wait(NOTES, "");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variant_is_made_becomes_the_default_and_answers() {
    journey(|tab, place| {
        models_pane(tab);
        on_model(tab, BUILT_IN, "Variant");
        tab.wait(DIALOG, "Variant of llmsrv-tiny-code");
        tab.write("terse");
        tab.eval("document.querySelector('#dialog textarea').value = 'Be brief.'");
        tab.eval("document.querySelector('#dialog [type=number]').value = '0'");
        click(tab, "#dialog button.main");
        on_model(tab, "terse", "Make default");
        let badge = format!(
            "{}?.querySelector('.badge.main')?.textContent ?? ''",
            row("terse")
        );
        tab.wait(&badge, "default");
        let named = place.sandbox.run(&["default"]).ok().stdout;
        assert!(named.contains("terse"), "{named}");
        let shown = place.sandbox.run(&["show", "terse"]).ok().stdout;
        assert!(
            shown.contains("Be brief.") && shown.contains("temperature"),
            "{shown}"
        );
        on_model(tab, "terse", "Chat");
        tab.wait(
            "document.querySelector('#model')?.value ?? ''",
            "terse:latest",
        );
        ask(tab, REVERSE);
        tab.wait(NOTES, "");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_described_loaded_and_unloaded() {
    journey(|tab, place| {
        choose(tab, BUILT_IN);
        ask(tab, "Hello!");
        models_pane(tab);
        let loaded = format!(
            "{}?.querySelector('.loaded')?.textContent ?? ''",
            row(BUILT_IN)
        );
        tab.wait(&format!("({loaded}).startsWith('In memory, ')"), true);
        on_model(tab, BUILT_IN, "Details");
        tab.wait(DIALOG, BUILT_IN);
        tab.wait("document.querySelector('#dialog dd').textContent", "llama");
        tab.wait(
            "document.querySelector('#dialog').textContent.includes('1,024 tokens')",
            true,
        );
        press(tab, "#dialog", "Close");
        tab.wait(DIALOG, "");
        on_model(tab, BUILT_IN, "Unload");
        tab.wait(&loaded, "");
        assert_eq!(place.get("/api/ps")["models"], json!([]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_found_for_this_machine() {
    journey(|tab, _| {
        models_pane(tab);
        click(tab, ".find summary");
        // Its bandwidth is measured now.
        tab.wait("document.querySelectorAll('.found li').length > 3", true);
let speed = "[...document.querySelectorAll('.found li p')].some((it) => /about [\\d.,]+ tok\\/s here/.test(it.textContent))";
        tab.wait(speed, true);
        tab.width(1280);
        tab.picture("web-models");
        tab.eval("document.querySelector('#find-model').focus()");
        tab.write("vision");
        let all = "[...document.querySelectorAll('.found li')].every((it) => it.textContent.includes('vision'))";
        tab.wait(all, true);
        assert_ne!(tab.eval("document.querySelectorAll('.found li').length"), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_models_answer_side_by_side_and_one_goes_on() {
    journey(|tab, _| {
        tab.eval("location.hash = '#/compare'");
        tab.wait("document.querySelectorAll('.side option').length", 4);
        tab.eval(&format!(
            "(() => {{ const [one, two] = document.querySelectorAll('.side select'); \
             for (const [it, name] of [[one, '{BUILT_IN}:latest'], [two, '{TALKER}:latest']]) {{ it.value = name; it.dispatchEvent(new Event('change')); }} \
             document.querySelector('.compare textarea').focus(); }})()"
        ));
        tab.write(REVERSE);
        tab.press("Enter");
        tab.wait("document.querySelector('#send-both').getAttribute('aria-label')", "Send to both");
        let said = "[...document.querySelectorAll('.side')].map((it) => it.querySelector('.assistant .text')?.textContent ?? '')";
        tab.wait(&format!("({said})[0].includes('def ')"), true);
        tab.wait(&format!("({said})[1]"), REVERSE);
        tab.eval("document.querySelectorAll('.side .row button')[1].click()");
        tab.wait("document.querySelector('#model')?.value ?? ''", format!("{TALKER}:latest"));
        ask(tab, "more");
        tab.wait(ANSWER, "more");
        tab.wait("document.querySelectorAll('.message').length", 4);
    })
    .await;
}

// ---- the machine, and who may see it ----

#[tokio::test(flavor = "multi_thread")]
async fn the_machine_shows_figures_and_requests() {
    journey(|tab, _| {
        choose(tab, BUILT_IN);
        ask(tab, REVERSE);
        tab.eval("location.hash = '#/machine'");
        tab.wait("document.querySelectorAll('.tile').length", 4);
        tab.wait("document.querySelector('tbody th')?.textContent ?? ''", BUILT_IN);
        let requests = "[...document.querySelectorAll('.table')].at(-1).textContent.includes('POST /api/chat')";
        tab.wait(requests, true);
        tab.width(1280);
        tab.picture("web-machine");
    })
    .await;
}

/// A server with a key for chatting and one for all else.
async fn with_keys() -> (Place, BTreeMap<&'static str, String>) {
    let mut keys = BTreeMap::new();
    let add = |sandbox: &Sandbox| {
        for role in ["infer", "manage"] {
            let made = sandbox.run(&["key", "add", role, "--role", role, "--json"]);
            let key = made.ok().json()["key"].as_str().unwrap().to_owned();
            keys.insert(role, key);
        }
    };
    (Place::new(add, &[]).await, keys)
}

fn write_key(tab: &mut Tab, key: &str) {
    tab.wait(DIALOG, "API key");
    tab.wait("document.activeElement.type", "password");
    tab.write(key);
    tab.press("Enter");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_opens_what_its_role_allows() {
    let (place, keys) = with_keys().await;
    place
        .visit(move |tab, place| {
            write_key(tab, "wrong");
            tab.wait("document.activeElement.value", "");
            write_key(tab, &keys["infer"]);
            choose(tab, BUILT_IN);
            ask(tab, REVERSE);
            tab.wait(&format!("({ANSWER}).includes('def ')"), true);
            for pane in ["models", "machine"] {
                tab.eval(&format!("location.hash = '#/{pane}'"));
                tab.wait("document.querySelector('main .empty h2')?.textContent ?? ''", "Not with this role");
                assert_eq!(tab.eval("document.querySelectorAll('.models, .tiles').length"), 0);
            }
            click(tab, "main .empty button");
            write_key(tab, &keys["manage"]);
            tab.wait("document.querySelectorAll('.tile').length", 4);
            // No key is kept anywhere.
            let kept = tab.eval("JSON.stringify([localStorage, sessionStorage, document.cookie, document.documentElement.outerHTML])");
            assert!(keys.values().all(|key| !kept.as_str().unwrap().contains(key.as_str())));
            tab.goto(&place.url);
            tab.wait(DIALOG, "API key");
            tab.errors.retain(|error| !error.contains("status of 401"));
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_taken_back_is_asked_for_anew() {
    let (place, keys) = with_keys().await;
    place
        .visit(move |tab, place| {
            write_key(tab, &keys["infer"]);
            choose(tab, TALKER);
            ask(tab, "one");
            place.sandbox.run(&["key", "rm", "infer"]).ok();
            place.server().wait_for_log("keys read keys=1", 1);
            send(tab, "two");
            write_key(tab, &keys["manage"]);
            tab.wait(ANSWER, "two");
            tab.wait(QUIET, true);
            tab.errors.retain(|error| !error.contains("status of 401"));
        })
        .await;
}

// ---- for everybody ----

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_shows_all_without_scrolling_sideways() {
    journey(|tab, place| {
        tab.width(360);
        choose(tab, TALKER);
        ask(
            tab,
            "a_long_word_that_has_no_place_to_break_in_it_at_all_and_goes_on_for_a_while",
        );
        tab.eval("location.hash = '#/'");
        tab.wait("document.querySelectorAll('.message').length", 0);
        choose(tab, BUILT_IN);
        ask(tab, REVERSE);
        for (pane, there) in [
            ("", ".message"),
            ("#/compare", ".side option"),
            ("#/models", ".models li"),
            ("#/machine", ".tile"),
        ] {
            if !pane.is_empty() {
                tab.goto(&format!("{}{pane}", place.url));
            }
            tab.wait(
                &format!("document.querySelectorAll('{there}').length > 1"),
                true,
            );
            assert_eq!(
                tab.eval("document.documentElement.scrollWidth"),
                360,
                "{pane}"
            );
            assert_eq!(tab.eval(OUTSIDE), "", "{pane}");
        }
        click(tab, ".menu-button");
        tab.wait("document.querySelector('main').inert", true);
        tab.wait("document.querySelectorAll('#chats a').length", 2);
        tab.eval("[...document.querySelectorAll('#chats a')].at(-1).click()");
        tab.wait("document.querySelector('main').inert", false);
        tab.wait("document.querySelectorAll('.message').length", 2);
        assert_eq!(tab.eval(OUTSIDE), "");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_needs_no_mouse() {
    journey(|tab, _| {
        tab.wait("document.activeElement.id", "prompt");
        tab.wait(
            "document.querySelector('#model')?.value ?? ''",
            format!("{BUILT_IN}:latest"),
        );
        tab.write("Hello!");
        tab.press("Enter");
        tab.wait("document.querySelectorAll('.message').length", 2);
        tab.wait(QUIET, true);
        tab.press("ArrowUp");
        tab.wait(
            "document.activeElement.getAttribute('aria-label')",
            "Edit the message",
        );
        tab.eval("document.activeElement.select()");
        tab.write(REVERSE);
        tab.press("Enter");
        tab.wait(&format!("({ANSWER}).includes('def ')"), true);
        tab.wait(QUIET, true);
        tab.eval("document.activeElement.blur()");
        tab.press("?");
        tab.wait(DIALOG, "Keyboard");
        tab.press("Escape");
        tab.wait(DIALOG, "");
        tab.press("n");
        tab.wait("document.querySelectorAll('.message').length", 0);
        tab.wait("document.activeElement.id", "prompt");
        tab.wait("document.querySelectorAll('#chats a').length", 1);
        // To the conversation of before, by the list.
        for _ in 0..60 {
            if tab.eval("document.activeElement.matches('#chats a')") == true {
                break;
            }
            tab.press("Tab");
        }
        tab.press("Enter");
        tab.wait("document.querySelectorAll('.message').length", 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn light_or_dark_is_as_one_chose_it() {
    journey(|tab, _| {
        tab.width(1280);
        let questions = [
            "Explain this error: KeyError: 'name'",
            "What is a mutex?",
            REVERSE,
        ];
        for question in questions {
            choose(tab, BUILT_IN);
            ask(tab, question);
            click(tab, "#new");
        }
        tab.wait("document.querySelectorAll('#chats a').length", 3);
        click(tab, "#chats a");
        tab.wait("document.querySelectorAll('.message').length", 2);
        let colour = "getComputedStyle(document.body).backgroundColor";
        tab.colours("light");
        let light = tab.eval(colour);
        tab.picture("web-light");
        tab.colours("dark");
        let dark = tab.eval(colour);
        tab.picture("web-dark");
        assert_ne!(light, dark);
        click(tab, "#theme");
        tab.wait(colour, light.clone());
        tab.call("Page.reload", json!({}));
        tab.wait("document.readyState", "complete");
        tab.wait(colour, light);
    })
    .await;
}

/// Bytes of the page's objects, without what is garbage.
fn heap(tab: &mut Tab) -> f64 {
    tab.call("HeapProfiler.collectGarbage", json!({}));
    let usage = tab.call("Runtime.getHeapUsage", json!({}));
    usage["usedSize"].as_f64().unwrap()
}

/// What docs/web.md says of speed and memory.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures; it takes a quiet machine and some minutes"]
async fn measure_frames_and_memory_of_streams() {
    journey(|tab, _| {
        choose(tab, TALKER);
        ask(tab, "hello");
        let before = heap(tab);
        send(tab, "talk for ever");
        tab.wait(&format!("({ANSWER}).includes('word100 ')"), true);
        let frames = "new Promise((done) => { const times = []; const next = (now) => { times.push(now); \
            if (now - times[0] < 5000) requestAnimationFrame(next); else { \
            const gaps = times.slice(1).map((it, i) => it - times[i]).sort((a, b) => a - b); \
            done([gaps.length / 5, gaps[Math.floor(gaps.length * 0.99)], gaps.at(-1)].map(Math.round).join(' ')); } }; \
            requestAnimationFrame(next); })";
        let frames = tab.eval(frames);
        println!("frames a second, p99 and longest gap in ms while 100 words a second come: {frames}");
        tab.press("Escape");
        tab.wait(QUIET, true);
        for part in 1..=3 {
            let began = Instant::now();
            // As the question after it would be too long to send.
            click(tab, "#new");
            tab.wait("document.querySelectorAll('.message').length", 0);
            send(tab, "talk for an hour");
            let n = "document.querySelectorAll('.message.assistant').length";
            tab.wait(n, 1);
            while tab.eval(QUIET) != true {
                std::thread::sleep(Duration::from_millis(200));
            }
            let (heap, seconds) = (heap(tab), began.elapsed().as_secs());
            println!(
                "after {part} times 360,000 words: {:.1} MB more than before, in {seconds} s",
                (heap - before) / 1e6
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn axe_finds_nothing_to_mend() {
    let clients =
        std::env::var_os("TEST_CLIENTS").expect("axe-core is missing, which `tests/run` installs");
    let path = Path::new(&clients).join("node_modules/axe-core/axe.min.js");
    let axe = fs::read_to_string(path).unwrap();
    let found = "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => \
        violations.map((it) => it.id + ': ' + it.nodes.map((node) => node.html.slice(0, 120)).join(' | ')).join('\\n'))";
    journey(move |tab, place| {
        choose(tab, BUILT_IN);
        ask(tab, REVERSE);
        let check = |tab: &mut Tab, what: &str| {
            tab.eval(&axe);
            for scheme in ["light", "dark"] {
                tab.colours(scheme);
                assert_eq!(tab.eval(found), "", "{what} {scheme}");
            }
        };
        check(tab, "chat");
        models_pane(tab);
        check(tab, "models");
        for pane in ["compare", "machine"] {
            go(tab, &place.url, pane);
            check(tab, pane);
        }
        tab.width(360);
        tab.goto(&place.url);
        click(tab, ".menu-button");
        tab.wait("document.querySelector('main').inert", true);
        check(tab, "menu of a phone");
    })
    .await;
}
