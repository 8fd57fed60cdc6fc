//! The web app of the real program, with the built-in model.

use serde_json::json;

use crate::{tab::Tab, util::Sandbox};

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
        tab.write("Write a Python function that reverses a string.");
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
        tab.eval("0");
        assert!(tab.errors.is_empty(), "{:#?}", tab.errors);
    })
    .await
    .unwrap();
}
