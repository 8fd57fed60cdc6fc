//! Templates of strangers: refused where a model is made or comes in, harmless in lists, and a clear
//! error where they would be used. Before there were bounds each of these ended the process.

use http::Method;
use llmsrv_engine::fake::FakeOptions;
use llmsrv_gguf::{Metadata, Writer};
use llmsrv_store::{Digest, LayerKind};
use serde_json::{Value, json};

use crate::{
    host::{Host, configured, host, host_with},
    registry::registry_with,
};

/// What a template may be made of a hundred times, and not ten thousand times.
const CHAINS: &[(&str, &str, &str)] = &[
    ("{{ ", "-", "1 }}"),
    ("{{ ", "not ", "1 }}"),
    ("{{ 'a'", "~'a'", " }}"),
    ("{{ 'a'", "|upper", " }}"),
    ("{{ a", ".b", " }}"),
    ("{{ a", "()", " }}"),
    ("{{ a", "[0]", " }}"),
    ("{% if a %}", "{% elif a %}", "{% endif %}"),
    ("{{ a", " and a", " }}"),
    ("{{ a", " if a else a", " }}"),
    ("{{ ", "(", ""),
    ("", "{% if a %}", ""),
];

fn hostile((open, middle, close): &(&str, &str, &str)) -> String {
    format!("{open}{}{close}", middle.repeat(10_000))
}

fn gguf(template: &str) -> Vec<u8> {
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "llama");
    metadata.set("tokenizer.chat_template", template);
    Writer::new(metadata).to_bytes().unwrap()
}

async fn upload(host: &Host, bytes: Vec<u8>) -> String {
    let digest = Digest::of(&bytes).to_string();
    let path = format!("/api/blobs/{digest}");
    let (status, text) = host.text(Method::POST, &path, bytes).await;
    assert_eq!(status, 201, "{text}");
    digest
}

fn names(list: &Value, members: &str, name: &str) -> Vec<String> {
    let models = list[members].as_array().unwrap();
    let text = |model: &Value| model[name].as_str().unwrap().to_owned();
    models.iter().map(text).collect()
}

#[tokio::test]
async fn a_hostile_template_is_refused_where_a_model_is_made() {
    let host = host();
    for chain in CHAINS {
        let digest = upload(&host, gguf(&hostile(chain))).await;
        let mut order = json!({"model": "evil", "files": {"m.gguf": digest}, "stream": false});
        let (status, answer) = host.post("/api/create", order.clone()).await;
        let text = answer["error"].as_str().unwrap();
        assert_eq!(status, 400, "{chain:?}: {text}");
        assert!(
            text.contains("template of the model cannot be used"),
            "{text}"
        );
        assert!(text.contains("give another one with TEMPLATE"), "{text}");
        // So it can be used after all.
        order["template"] = json!("{{ .Prompt }}");
        order["model"] = json!("good");
        assert_eq!(host.post("/api/create", order).await.0, 200);
    }
    let go = format!(
        "{{{{ if 0 }}}}{}{{{{ end }}}}",
        "{{ else if 0 }}".repeat(5000)
    );
    for order in [
        json!({"model": "evil", "from": "plain", "template": go, "stream": false}),
        json!({"model": "evil", "modelfile": format!("FROM plain\nTEMPLATE \"\"\"{go}\"\"\""), "stream": false}),
    ] {
        let (status, answer) = host.post("/api/create", order).await;
        assert_eq!(status, 400, "{answer}");
        let text = answer["error"].as_str().unwrap();
        assert!(text.contains("100 nested blocks"), "{text}");
    }
    let listed = names(&host.get("/api/tags").await, "models", "name");
    assert!(!listed.contains(&"evil:latest".to_owned()), "{listed:?}");
}

#[tokio::test]
async fn a_hostile_template_in_the_store_spoils_nothing_else() {
    let host = host();
    for chain in CHAINS {
        host.put("evil", &gguf(&hostile(chain)));
        for (path, members, name) in [
            ("/api/tags", "models", "name"),
            ("/v1/models", "data", "id"),
        ] {
            let listed = names(&host.get(path).await, members, name);
            assert!(listed.contains(&"evil:latest".to_owned()), "{listed:?}");
            assert!(listed.contains(&"plain:latest".to_owned()), "{listed:?}");
        }
        let messages = json!([{"role": "user", "content": "hi"}]);
        for (path, body) in [
            ("/api/show", json!({"model": "evil"})),
            (
                "/api/generate",
                json!({"model": "evil", "prompt": "x", "stream": false}),
            ),
            (
                "/api/chat",
                json!({"model": "evil", "messages": messages, "stream": false}),
            ),
            (
                "/v1/chat/completions",
                json!({"model": "evil", "messages": messages}),
            ),
            ("/v1/completions", json!({"model": "evil", "prompt": "x"})),
            (
                "/v1/messages/count_tokens",
                json!({"model": "evil", "messages": messages}),
            ),
        ] {
            let (status, answer) = host.post(path, body).await;
            let text = answer.to_string();
            assert_eq!(status, 500, "{path}: {text}");
            assert!(
                text.contains("the template of model 'evil:latest' cannot be used"),
                "{path}: {text}"
            );
        }
        assert_eq!(host.ask(json!({})).await.0, 200, "others answer");
        // The ways out: a template of its own, and away with it.
        let body = json!({"model": "mended", "from": "evil", "template": "{{ .Prompt }}", "stream": false});
        assert_eq!(host.post("/api/create", body).await.0, 200);
        assert_eq!(host.ask(json!({"model": "mended"})).await.0, 200);
        let body = json!({"model": "evil"}).to_string();
        assert_eq!(host.text(Method::DELETE, "/api/delete", body).await.0, 200);
    }
}

#[tokio::test]
async fn a_hostile_template_is_not_pulled() {
    for chain in &CHAINS[..2] {
        let (fake, host) = (registry_with(gguf(&hostile(chain))).await, host());
        let name = format!("{}/a/b:t", fake.host);
        let body = json!({"model": name, "insecure": true, "stream": false});
        let (status, answer) = host.post("/api/pull", body).await;
        let text = answer["error"].as_str().unwrap();
        assert_eq!(status, 500, "{text}");
        assert!(text.contains("template exceeds the limit of"), "{text}");
        let listed = names(&host.get("/api/tags").await, "models", "name");
        assert!(
            !listed.iter().any(|listed| listed.contains("a/b")),
            "{listed:?}"
        );
    }
    // One that only does not parse can be pulled: another template may be given to it.
    let (fake, host) = (registry_with(gguf("{% if %}")).await, host());
    let name = format!("{}/a/b:t", fake.host);
    let body = json!({"model": name, "insecure": true, "stream": false});
    assert_eq!(host.post("/api/pull", body).await.0, 200);
}

/// A layer that knows no tools, and a template of the same model's file that does.
const WEAK: &str = "{{ range .Messages }}{{ .Content }}{{ end }}";
const ABLE: &str = "{% for t in tools %}{{ t.function.name }};{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}";

/// Asks what can be done with a model, and by which template; in lists, too, if they say the same.
async fn known(host: &Host, name: &str) -> (Value, Value) {
    let (status, shown) = host.post("/api/show", json!({ "model": name })).await;
    assert_eq!(status, 200, "{shown}");
    let tags = host.get("/api/tags").await;
    let models = tags["models"].as_array().unwrap();
    let listed = models
        .iter()
        .find(|model| model["name"] == format!("{name}:latest"));
    let listed = &listed.unwrap()["capabilities"];
    assert_eq!(&shown["capabilities"], listed, "{name}");
    (listed.clone(), shown["template"].clone())
}

/// Offers a tool to a model; returns the prompt, or what is said against it.
async fn offered(host: &Host, name: &str) -> String {
    let tool = json!({"type": "function", "function": {"name": "look", "parameters": {}}});
    let messages = json!([{"role": "user", "content": "hi"}]);
    let body =
        json!({"model": name, "messages": messages, "tools": [tool], "_debug_render_only": true});
    let (_, answer) = host.post("/api/chat", body).await;
    let said = [
        &answer["_debug_info"]["rendered_template"],
        &answer["error"],
    ];
    said.into_iter()
        .find_map(Value::as_str)
        .unwrap_or_else(|| panic!("{answer}"))
        .to_owned()
}

#[tokio::test]
async fn a_layer_that_does_less_than_the_template_of_the_file_gives_way() {
    let host = host();
    let file = gguf(ABLE);
    let layers = [
        (LayerKind::Model, &file[..]),
        (LayerKind::Template, WEAK.as_bytes()),
    ];
    host.put_layers("pulled", "{}", &layers);
    host.put_layers("parsed", r#"{"parser":"p"}"#, &layers);
    let broken = gguf("{% for t in tools %}");
    host.put_layers(
        "broken-file",
        "{}",
        &[(LayerKind::Model, &broken), layers[1]],
    );
    let (able, weak) = (json!(["completion", "tools"]), json!(["completion"]));
    assert_eq!(known(&host, "pulled").await, (able.clone(), json!(ABLE)));
    assert_eq!(offered(&host, "pulled").await, "look;hi");
    // Where a parser is named there is more to it than both templates say.
    assert_eq!(known(&host, "parsed").await, (weak.clone(), json!(WEAK)));
    // No list parses the template of a file.
    let (_, shown) = host
        .post("/api/show", json!({"model": "broken-file"}))
        .await;
    assert_eq!(
        (&shown["capabilities"], &shown["template"]),
        (&weak, &json!(WEAK))
    );
    assert_eq!(host.ask(json!({"model": "broken-file"})).await.0, 200);

    // What is made from it is as it is, also by what `show` writes, until it gets a template of its own.
    let (_, shown) = host.post("/api/show", json!({"model": "pulled"})).await;
    let modelfile = &shown["modelfile"];
    for (name, order) in [
        ("derived", json!({"from": "pulled", "system": "S"})),
        ("copied", json!({ "modelfile": modelfile })),
        ("own", json!({"from": "pulled", "template": WEAK})),
        ("of-own", json!({"from": "own", "system": "S"})),
    ] {
        let mut order = order;
        order["model"] = json!(name);
        order["stream"] = json!(false);
        assert_eq!(host.post("/api/create", order).await.0, 200, "{name}");
        let is_own = name.contains("own");
        let expected = if is_own {
            (weak.clone(), json!(WEAK))
        } else {
            (able.clone(), json!(ABLE))
        };
        assert_eq!(known(&host, name).await, expected, "{name}");
        let refused = format!("registry.ollama.ai/library/{name}:latest does not support tools");
        let said = offered(&host, name).await;
        let prompt = if name == "derived" {
            "look;Shi"
        } else {
            "look;hi"
        };
        assert_eq!(said, if is_own { &refused } else { prompt }, "{name}");
    }
}

#[tokio::test]
async fn a_setting_says_which_template_goes_first() {
    for (go_first, expected) in [(None, WEAK), (Some(true), WEAK), (Some(false), ABLE)] {
        let host = host_with(
            configured(|config| config.go_template = go_first),
            FakeOptions::default,
        );
        let file = gguf(ABLE);
        host.put_layers("alone", "{}", &[(LayerKind::Model, &file)]);
        assert_eq!(known(&host, "alone").await.1, ABLE, "{go_first:?}");
        let order = json!({"model": "both", "from": "alone", "template": WEAK, "stream": false});
        assert_eq!(host.post("/api/create", order).await.0, 200);
        assert_eq!(known(&host, "both").await.1, expected, "{go_first:?}");
        let layer = (LayerKind::Template, WEAK.as_bytes());
        host.put_layers("pulled", "{}", &[(LayerKind::Model, &file), layer]);
        let expected = if go_first == Some(true) { WEAK } else { ABLE };
        assert_eq!(known(&host, "pulled").await.1, expected, "{go_first:?}");
        // Where there is no choice there is none.
        assert_ne!(known(&host, "plain").await.1, ABLE);
    }
}

#[tokio::test]
async fn the_template_of_a_request_is_bounded() {
    let host = host();
    let chain = |n: usize| format!("{{{{if 0}}}}{}{{{{end}}}}", "{{else if 0}}".repeat(n));
    let doubling = "{{$x = print $x $x}}".repeat(21);
    let spinning = format!(
        "{{{{$x := \"aaaaaaaaaaaaaaaa\"}}}}{doubling}{{{{$y := print $x \"b\"}}}}{{{{$z := print $x \"c\"}}}}\
         {{{{range 900000}}}}{{{{if eq $y $z}}}}{{{{end}}}}{{{{end}}}}"
    );
    for template in [
        chain(200),
        chain(2000),
        chain(5000),
        chain(50_000),
        "{{".to_owned() + &"(".repeat(50_000),
        "{{if 1}}".repeat(50_000),
        spinning,
    ] {
        let (status, answer) = host.ask(json!({ "template": template })).await;
        assert_eq!(status, 400, "{answer}");
        let text = answer["error"].as_str().unwrap();
        assert!(text.starts_with("template "), "{text}");
    }
    assert_eq!(host.ask(json!({"template": chain(50)})).await.0, 200);
}
