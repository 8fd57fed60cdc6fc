//! `docs/contracts/logkit.md` 7, item by item.

use std::{
    io::Write as _,
    sync::mpsc,
    time::{Duration, Instant},
};

use logkit_proto::v1::QueryRequest;
use logkit_server::Settings;
use serde_json::{Value, json};

use crate::util::{Running, start};

async fn plain() -> Running {
    start(|_| {}).await
}

#[tokio::test]
async fn an_entry_is_stored_as_the_contract_says() {
    let server = plain().await;
    let reply = server
        .log(json!({
            "cmd": "backup", "args": ["/home", "it's", 3, null, true], "language": "python",
            "env": "test", "success": true, "duration_ms": 12.5, "output": "done\n",
            "trace_id": "t1", "version": "1.2", "timestamp": "2026-11-20T19:54:48.596202+00:00",
            "shoe": 43, "extra": {"host": "h"},
        }))
        .await;
    assert_eq!(
        reply,
        json!({"cmd": "backup", "language": "python", "stored": true, "id": 1,
               "timestamp": "2026-11-20T19:54:48.596202+00:00"})
    );
    let rows = server.get("/logs").await.json();
    assert_eq!(
        rows,
        json!([{
            "id": 1, "timestamp": "2026-11-20T19:54:48.596202+00:00", "level": "INFO",
            "function_name": "backup", "module": "python",
            "args": "('/home', \"it's\", 3, None, True)",
            "kwargs": "{'language': 'python', 'env': 'test'}", "arg_types": "",
            "kwarg_types": "{}", "return_value": "'done\\n'", "return_type": "",
            "exception": "", "exception_type": "", "traceback": "", "duration_ms": 12.5,
            "environment": "test", "trace_id": "t1", "version": "1.2", "llm_analysis": "",
            "extra": {"shoe": 43, "host": "h"}, "span_id": "", "parent_id": "",
        }])
    );
    let columns: Vec<_> = rows[0].as_object().unwrap().keys().collect();
    assert_eq!(columns[0], "id");
    assert_eq!(columns[1..19], logkit::Entry::COLUMNS);
}

#[tokio::test]
async fn what_is_left_out_has_the_values_of_the_contract() {
    let server = plain().await;
    let reply = server.log(json!({"cmd": "ls"})).await;
    assert_eq!(reply["language"], "bash");
    server.log(json!({"cmd": "ls", "success": false})).await;
    server.log(json!({"cmd": "ls", "error": "boom"})).await;
    server
        .log(json!({"cmd": "ls", "error": "boom", "success": true}))
        .await;
    server
        .log(json!({"cmd": "ls", "error": "", "success": null, "output": null}))
        .await;
    server
        .log(json!({"cmd": "ls", "success": "no", "duration_ms": "2.5", "level": "warning"}))
        .await;
    let found: Vec<_> = server
        .rows()
        .into_iter()
        .map(|row| {
            let entry = row.entry;
            assert_eq!(entry.kwargs, "{'language': 'bash', 'env': 'prod'}");
            assert_eq!((&*entry.args, &*entry.return_value), ("()", "None"));
            (
                entry.level.to_string(),
                entry.exception_type.to_string(),
                entry.duration_ms,
            )
        })
        .collect();
    let expected = [
        ("INFO", "", 0.0),
        ("ERROR", "", 0.0),
        ("ERROR", "RemoteError", 0.0),
        ("INFO", "RemoteError", 0.0),
        ("INFO", "", 0.0),
        ("WARNING", "", 2.5),
    ];
    let expected = expected.map(|(level, kind, ms)| (level.to_owned(), kind.to_owned(), Some(ms)));
    assert_eq!(found, expected);
}

#[tokio::test]
async fn an_entry_of_a_logger_comes_as_it_is() {
    let server = plain().await;
    let entry = json!({
        "timestamp": "2026-11-20T19:54:48.000001+00:00", "level": "ERROR", "function_name": "A.f",
        "module": "m", "args": "(3, 7)", "kwargs": "{'x': 1}", "arg_types": "int, int",
        "kwarg_types": "{'x': 'int'}", "return_value": "None", "return_type": "",
        "exception": "no", "exception_type": "ValueError", "traceback": "Traceback",
        "duration_ms": null, "environment": "e", "trace_id": "t", "version": "v",
        "llm_analysis": "l", "extra": {"a": 1, "span_id": "00000000000000ab",
        "parent_id": "00000000000000cd"},
    });
    let reply = server.log(entry.clone()).await;
    assert_eq!(
        (&reply["cmd"], &reply["language"]),
        (&json!("A.f"), &json!("m"))
    );
    let row = server.get("/logs/1").await.json();
    for (name, value) in entry.as_object().unwrap() {
        if name != "extra" {
            assert_eq!(&row[name], value, "{name}");
        }
    }
    assert_eq!(row["extra"], json!({"a": 1}));
    assert_eq!(row["span_id"], "00000000000000ab");
    assert_eq!(row["parent_id"], "00000000000000cd");
    assert_eq!(server.get("/logs/2").await.status, 404);
    assert_eq!(server.get("/logs/x").await.status, 404);
}

#[tokio::test]
async fn wrong_bodies_are_told_what_is_wrong() {
    let server = plain().await;
    let missing = |place: Value, input: Value| json!({"type": "missing", "loc": place, "msg": "Field required", "input": input});
    let wrong = |kind: &str, place: Value, text: &str, input: Value| json!({"type": kind, "loc": place, "msg": text, "input": input});
    let string = "Input should be a valid string";
    for (path, body, expected) in [
        (
            "/log",
            "{}",
            vec![missing(json!(["body", "cmd"]), json!({}))],
        ),
        (
            "/log",
            r#"{"args": [1], "x": {"y": null}}"#,
            vec![missing(
                json!(["body", "cmd"]),
                json!({"args": [1], "x": {"y": null}}),
            )],
        ),
        ("/log", "", vec![missing(json!(["body"]), Value::Null)]),
        (
            "/log",
            r#"{"cmd": 3}"#,
            vec![wrong(
                "string_type",
                json!(["body", "cmd"]),
                string,
                json!(3),
            )],
        ),
        (
            "/log",
            r#"{"cmd": null}"#,
            vec![wrong(
                "string_type",
                json!(["body", "cmd"]),
                string,
                Value::Null,
            )],
        ),
        (
            "/log",
            r#"{"cmd": "x", "args": "a", "env": [], "success": "perhaps", "duration_ms": "long"}"#,
            vec![
                wrong(
                    "list_type",
                    json!(["body", "args"]),
                    "Input should be a valid list",
                    json!("a"),
                ),
                wrong("string_type", json!(["body", "env"]), string, json!([])),
                wrong(
                    "bool_parsing",
                    json!(["body", "success"]),
                    "Input should be a valid boolean, unable to interpret input",
                    json!("perhaps"),
                ),
                wrong(
                    "float_parsing",
                    json!(["body", "duration_ms"]),
                    "Input should be a valid number, unable to parse string as a number",
                    json!("long"),
                ),
            ],
        ),
        (
            "/log",
            "[1]",
            vec![wrong(
                "model_attributes_type",
                json!(["body"]),
                "Input should be a valid dictionary or object to extract fields from",
                json!([1]),
            )],
        ),
        (
            "/log/batch",
            "{}",
            vec![missing(json!(["body", "entries"]), json!({}))],
        ),
        (
            "/log/batch",
            r#"{"entries": 3}"#,
            vec![wrong(
                "list_type",
                json!(["body", "entries"]),
                "Input should be a valid list",
                json!(3),
            )],
        ),
        (
            "/log/batch",
            r#"{"entries": [{"cmd": "a"}, {"cmd": 1}]}"#,
            vec![wrong(
                "string_type",
                json!(["body", "entries", 1, "cmd"]),
                string,
                json!(1),
            )],
        ),
        (
            "/log/batch",
            r#"[{"cmd": 1}]"#,
            vec![wrong(
                "string_type",
                json!(["body", 0, "cmd"]),
                string,
                json!(1),
            )],
        ),
        (
            "/log/batch",
            "{\"cmd\": \"a\"}\n{\"x\": 1}\n",
            vec![missing(json!(["body", 1, "cmd"]), json!({"x": 1}))],
        ),
    ] {
        let answer = server.post(path, body).await;
        assert_eq!(answer.status, 422, "{body}");
        assert_eq!(answer.json(), json!({ "detail": expected }), "{body}");
    }
    for body in [
        "{",
        "{\"cmd\": }",
        "nonsense",
        "{\"cmd\": \"a\"} x",
        "\u{0}",
        "[[[[",
    ] {
        let answer = server.post("/log", body).await;
        assert_eq!(answer.status, 422, "{body}");
        let detail = &answer.json()["detail"][0];
        assert_eq!(detail["type"], "json_invalid", "{body}");
        assert_eq!(detail["msg"], "JSON decode error");
        assert!(
            detail["loc"][1].is_u64() && detail["ctx"]["error"].is_string(),
            "{detail}"
        );
    }
    assert_eq!(
        server.post("/log", "{\"cmd\": }").await.json()["detail"][0]["loc"][1],
        8
    );
    assert_eq!(server.post("/log", vec![0xff, 0xfe]).await.status, 422);
    assert!(
        server.rows().is_empty(),
        "a batch with a wrong entry stores none"
    );
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there() {
    let server = plain().await;
    for path in ["/nothing", "/log/", "/logs/stream/x", "/LOG"] {
        let answer = server.get(path).await;
        assert_eq!(
            (answer.status, answer.json()),
            (404, json!({"detail": "Not Found"})),
            "{path}"
        );
    }
    for (method, path, allow) in [
        ("GET", "/log", "POST"),
        ("PUT", "/log/batch", "POST"),
        ("POST", "/logs", "GET,HEAD"),
        ("DELETE", "/health", "GET,HEAD"),
        ("POST", "/", "GET,HEAD"),
    ] {
        let request = server
            .client
            .request(method.parse().unwrap(), server.url(path));
        let answer = server.send(request).await;
        assert_eq!(answer.status, 405, "{method} {path}");
        assert_eq!(answer.json(), json!({"detail": "Method Not Allowed"}));
        assert_eq!(answer.header("allow"), allow, "{method} {path}");
    }
}

#[tokio::test]
async fn batches_come_in_three_forms_and_are_one_transaction() {
    let server = plain().await;
    for (body, n_entries) in [
        (
            r#"{"entries": [{"cmd": "a"}, {"cmd": "b", "language": "go"}]}"#,
            2,
        ),
        (r#"[{"cmd": "c"}]"#, 1),
        (
            "{\"cmd\": \"d\"}\n\n{\"cmd\": \"e\"}\r\n{\"cmd\": \"f\"}",
            3,
        ),
        (r#"{"entries": []}"#, 0),
        ("[]", 0),
    ] {
        let answer = server.post("/log/batch", body).await;
        assert_eq!(answer.status, 200, "{body}: {}", answer.text);
        let json = answer.json();
        assert_eq!(json["stored"], n_entries, "{body}");
        assert_eq!(json["results"].as_array().unwrap().len(), n_entries);
        for result in json["results"].as_array().unwrap() {
            let row = server.get(&format!("/logs/{}", result["id"])).await.json();
            assert_eq!(row["function_name"], result["cmd"]);
            assert_eq!(row["module"], result["language"]);
            assert_eq!(row["timestamp"], result["timestamp"]);
        }
    }
    let names: Vec<_> = server
        .rows()
        .into_iter()
        .map(|row| row.entry.function_name)
        .collect();
    assert_eq!(names, ["a", "b", "c", "d", "e", "f"]);
    let many = vec![json!({"cmd": "x"}); 50_001];
    let answer = server
        .post("/log/batch", Value::from(many).to_string())
        .await;
    assert_eq!(answer.status, 422);
    assert_eq!(answer.json()["detail"][0]["type"], "too_long");
}

#[tokio::test]
async fn any_content_type_and_compression_will_do() {
    let server = plain().await;
    let body = br#"{"cmd": "x", "output": "zip zip zip"}"#;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(body).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(&body[..], 3).unwrap();
    for (kind, encoding, bytes, status) in [
        ("", "", body.to_vec(), 200),
        ("application/json", "", body.to_vec(), 200),
        (
            "application/x-www-form-urlencoded",
            "identity",
            body.to_vec(),
            200,
        ),
        ("image/png", "gzip", gzip.clone(), 200),
        ("", "zstd", zstd.clone(), 200),
        ("", "gzip", zstd, 400),
        ("", "gzip", gzip[..20].to_vec(), 400),
        ("", "br", gzip, 415),
    ] {
        let mut request = server.client.post(server.url("/log")).body(bytes);
        for (name, value) in [("content-type", kind), ("content-encoding", encoding)] {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        let answer = server.send(request).await;
        assert_eq!(answer.status, status, "{kind} {encoding}: {}", answer.text);
    }
    assert_eq!(server.rows().len(), 5);
}

#[tokio::test]
async fn bodies_have_limits_before_and_after_decompression() {
    let server = plain().await;
    let of = |n_bytes: usize| json!({"cmd": "x", "output": "a".repeat(n_bytes)}).to_string();
    assert_eq!(server.post("/log", of((1 << 20) - 100)).await.status, 200);
    let answer = server.post("/log", of(1 << 20)).await;
    assert_eq!(answer.status, 413);
    assert_eq!(
        answer.json()["detail"],
        "Request body is larger than 1048576 bytes"
    );
    let batch = |n_entries: usize| format!("[{}]", vec![of((1 << 20) - 100); n_entries].join(","));
    assert_eq!(server.post("/log/batch", batch(15)).await.status, 200);
    assert_eq!(server.post("/log/batch", batch(17)).await.status, 413);
    // A gigabyte of zeros in a megabyte.
    let mut bomb = zstd::Encoder::new(Vec::new(), 1).unwrap();
    for _ in 0..64 {
        bomb.write_all(&vec![b' '; 16 << 20]).unwrap();
    }
    let bomb = bomb.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    for path in ["/log", "/log/batch"] {
        let request = server.client.post(server.url(path)).body(bomb.clone());
        let answer = server
            .send(request.header("content-encoding", "zstd"))
            .await;
        assert_eq!(answer.status, 413);
    }
}

#[tokio::test]
async fn every_filter_filters() {
    let server = plain().await;
    for (idx, (cmd, language, env, level, trace)) in [
        ("alpha", "bash", "prod", "INFO", "t1"),
        ("beta", "python", "prod", "ERROR", "t1"),
        ("alphabet", "bash", "test", "WARNING", "t2"),
        ("gamma", "go", "test", "CRITICAL", ""),
    ]
    .into_iter()
    .enumerate()
    {
        server
            .log(
                json!({"cmd": cmd, "language": language, "env": env, "level": level,
                "trace_id": trace, "output": format!("out {idx}%"), "duration_ms": idx * 10,
                "timestamp": format!("2026-01-0{}T12:00:00+01:00", idx + 1)}),
            )
            .await;
    }
    for (query, expected) in [
        ("", "4321"),
        ("level=error", "2"),
        ("level=nothing", ""),
        ("errors=true", "42"),
        ("language=bash", "31"),
        ("env=test", "43"),
        ("function=ALPHA", "31"),
        ("trace_id=t1", "21"),
        ("q=out%202%25", "3"),
        ("q=_", ""),
        ("slow_ms=20", "43"),
        ("since=2026-01-02T11:00:00Z", "432"),
        ("since=2026-01-02T12:00:00.000001%2B01:00", "43"),
        // A plus that nobody encoded.
        ("since=2026-01-02T12:00:00+01:00", "432"),
        ("until=2026-01-02T11:00:00Z", "1"),
        ("since=2026-01-02&until=2026-01-04", "32"),
        ("limit=2", "43"),
        ("limit=2&cursor=3", "21"),
        ("language=bash&env=prod", "1"),
        ("language=&unknown=x", "4321"),
        ("format=ndjson&limit=1", "4"),
    ] {
        let answer = server.get(&format!("/logs?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text);
        let rows: Vec<Value> = if query.contains("ndjson") {
            assert_eq!(answer.header("content-type"), "application/x-ndjson");
            let lines = answer.text.lines();
            lines
                .map(|line| serde_json::from_str(line).unwrap())
                .collect()
        } else {
            serde_json::from_value(answer.json()).unwrap()
        };
        let ids: String = rows.iter().map(|row| row["id"].to_string()).collect();
        assert_eq!(ids, expected, "{query}");
    }
    for (query, kind) in [
        ("limit=0", "greater_than_equal"),
        ("limit=1001", "less_than_equal"),
        ("limit=many", "int_parsing"),
        ("since=soon", "datetime_parsing"),
        ("format=xml", "literal_error"),
        ("cursor=x", "int_parsing"),
    ] {
        let answer = server.get(&format!("/logs?{query}")).await;
        assert_eq!(answer.status, 422, "{query}");
        let detail = &answer.json()["detail"][0];
        assert_eq!(detail["type"], kind);
        let (name, value) = query.split_once('=').unwrap();
        assert_eq!(detail["loc"], json!(["query", name]));
        assert_eq!(detail["input"], value);
    }
}

#[tokio::test]
async fn what_the_database_cannot_search_for_is_refused() {
    let server = plain().await;
    let many = "word+".repeat(65);
    let long = "x".repeat(1025);
    for (query, why) in [
        (format!("q={many}"), "at most 64 words can be searched for"),
        (
            format!("q={long}"),
            "at most 1024 bytes can be searched for",
        ),
        (
            format!("function={long}"),
            "at most 1024 bytes can be searched for",
        ),
        (
            "q=a%00b".to_owned(),
            "a NUL character cannot be searched for",
        ),
    ] {
        let answer = server.get(&format!("/logs?{query}")).await;
        assert_eq!(answer.status, 422, "{query}");
        let detail = &answer.json()["detail"][0];
        assert_eq!(detail["type"], "value_error");
        assert_eq!(detail["loc"][1], query.split('=').next().unwrap());
        assert_eq!(detail["msg"], why);
    }
}

#[tokio::test]
async fn pages_miss_nothing_also_of_entries_that_came_late() {
    let server = plain().await;
    let entries: Vec<Value> = (0..95)
        .map(|idx| {
            // Moments in another order than rows, many of them equal.
            let second = idx * 37 % 10;
            json!({"cmd": idx.to_string(), "timestamp": format!("2026-01-01T00:00:0{second}Z")})
        })
        .collect();
    server
        .post("/log/batch", Value::from(entries).to_string())
        .await;
    let (mut seen, mut path) = (Vec::new(), "/logs?limit=10&level=INFO".to_owned());
    loop {
        let answer = server.get(&path).await;
        let rows = answer.json();
        let rows = rows.as_array().unwrap().clone();
        seen.extend(rows.iter().map(|row| {
            (
                row["timestamp"].as_str().unwrap().to_owned(),
                row["id"].as_i64().unwrap(),
            )
        }));
        let link = answer.header("link").to_owned();
        let Some(next) = link.strip_prefix('<').and_then(|link| link.split_once('>')) else {
            assert!(answer.header("x-next-cursor").is_empty());
            break;
        };
        assert!(
            next.0
                .ends_with(&format!("cursor={}", answer.header("x-next-cursor")))
        );
        path = next.0.to_owned();
    }
    let mut sorted = seen.clone();
    sorted.sort();
    sorted.reverse();
    assert_eq!(seen, sorted, "newest first on all pages");
    sorted.dedup();
    assert_eq!(sorted.len(), 95);
}

#[tokio::test]
async fn a_stream_tells_what_comes_and_goes_on_where_it_ended() {
    let server = plain().await;
    server.log(json!({"cmd": "before"})).await;
    let mut stream = Events::open(&server, "/logs/stream?level=ERROR", None).await;
    server.log(json!({"cmd": "no"})).await;
    server.log(json!({"cmd": "one", "error": "e\nf"})).await;
    server.log(json!({"cmd": "two", "error": "e"})).await;
    let (id, one) = stream.next().await;
    assert_eq!((id.as_str(), &one["function_name"]), ("3", &json!("one")));
    assert_eq!(one["exception"], "e\nf");
    assert_eq!(stream.next().await.1["function_name"], "two");
    drop(stream);
    server.log(json!({"cmd": "three", "error": "e"})).await;
    let mut stream = Events::open(&server, "/logs/stream?level=ERROR", Some("3")).await;
    assert_eq!(stream.next().await.1["function_name"], "two");
    assert_eq!(stream.next().await.1["function_name"], "three");
    // What another program writes into the database comes as well.
    let mut other =
        logkit::DbSink::open(server.database(), "logs", logkit::Durability::default()).unwrap();
    let entry = logkit::Entry {
        function_name: "other".into(),
        level: logkit::Level::Error,
        ..logkit::Entry::default()
    };
    logkit::Sink::write_batch(&mut other, &[entry]).unwrap();
    assert_eq!(stream.next().await.1["function_name"], "other");
    // The end of the server is the end of the stream, at once.
    let began = std::time::Instant::now();
    server.server.stop().await;
    assert!(stream.ended().await);
    assert!(began.elapsed().as_secs() < 4);
}

pub(crate) struct Events {
    response: reqwest::Response,
    text: String,
}

impl Events {
    pub(crate) async fn open(server: &Running, path: &str, last: Option<&str>) -> Events {
        let mut request = server.client.get(server.url(path));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Events {
            response,
            text: String::new(),
        }
    }

    pub(crate) async fn next(&mut self) -> (String, Value) {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    let lines = event.lines().filter_map(|line| line.strip_prefix(name));
                    lines.map(str::trim_start).collect::<String>()
                };
                let (id, data) = (field("id:"), field("data:"));
                self.text.drain(..self.text.len() - rest.len());
                if !data.is_empty() {
                    return (id, serde_json::from_str(&data).unwrap());
                }
                continue;
            }
            let chunk = self
                .response
                .chunk()
                .await
                .unwrap()
                .expect("the stream goes on");
            self.text.push_str(str::from_utf8(&chunk).unwrap());
        }
    }

    async fn ended(&mut self) -> bool {
        while let Ok(Some(_)) = self.response.chunk().await {}
        true
    }
}

/// Takes the first batch, and stands still from the second one on until its channel is closed.
struct StandsStill(mpsc::Receiver<()>, bool);

impl logkit::Sink for StandsStill {
    fn write_batch(&mut self, _: &[logkit::Entry]) -> Result<(), logkit::SinkError> {
        if std::mem::replace(&mut self.1, true) {
            let _ = self.0.recv();
        }
        Ok(())
    }
}

#[tokio::test]
async fn nobody_waits_for_a_sink_that_stands_still_and_what_it_lost_is_counted() {
    let (release, released) = mpsc::channel();
    let server = start(|settings| {
        settings.queue = 100;
        settings.sinks = vec![Box::new(StandsStill(released, false))];
    })
    .await;
    let batch = json!({"entries": vec![json!({"cmd": "x", "success": false}); 100]}).to_string();
    let began = Instant::now();
    for _ in 0..5 {
        let answer = server.post("/log/batch", batch.clone()).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    // To wait for room takes that long.
    assert!(began.elapsed() < Duration::from_secs(1));
    assert_eq!(server.rows().len(), 500);
    let metrics = server.get("/metrics").await.text;
    let lost = metrics
        .lines()
        .find_map(|line| line.strip_prefix("logkit_sinks_dropped_total{reason=\"queue\"} "));
    assert!(lost.unwrap().parse::<u64>().unwrap() >= 200, "{metrics}");
    drop(release);
}

#[tokio::test]
async fn health_metrics_and_the_description() {
    let server = plain().await;
    server.log(json!({"cmd": "x"})).await;
    for ms in [250, 500] {
        let call = json!({"cmd": "y", "language": "go", "success": false, "duration_ms": ms});
        server.log(call).await;
    }
    server.post("/log", "{}").await;
    let health = server.get("/health").await;
    let path = server.database().display().to_string();
    assert_eq!(
        (health.status, health.json()),
        (200, json!({"status": "ok", "db": path}))
    );
    let metrics = server.get("/metrics").await;
    assert_eq!(
        metrics.header("content-type"),
        "text/plain; version=0.0.4; charset=utf-8"
    );
    for line in [
        "logkit_stored_total 3",
        "logkit_written_total 3",
        "logkit_queue_length 0",
        "logkit_dropped_total{reason=\"queue\"} 0",
        "logkit_calls_total{function=\"x\",level=\"INFO\",module=\"bash\"} 1",
        "logkit_calls_total{function=\"y\",level=\"ERROR\",module=\"go\"} 2",
        "logkit_errors_total{function=\"y\",module=\"go\"} 2",
        "logkit_duration_seconds_bucket{function=\"y\",le=\"0.25\",module=\"go\"} 1",
        "logkit_duration_seconds_count{function=\"y\",module=\"go\"} 2",
        "logkit_duration_seconds_sum{function=\"y\",module=\"go\"} 0.75",
        "logkit_http_request_duration_seconds_count{route=\"/log\",status=\"200\"} 3",
        "logkit_http_request_duration_seconds_count{route=\"/log\",status=\"422\"} 1",
    ] {
        assert!(
            metrics.text.lines().any(|found| found == line),
            "{line}\n{}",
            metrics.text
        );
    }
    assert!(
        metrics
            .text
            .contains("logkit_last_call_timestamp{function=\"x\"} ")
    );
    let request = server.client.get(server.url("/metrics"));
    let open = server
        .send(request.header("accept", "application/openmetrics-text; version=1.0.0"))
        .await;
    assert!(
        open.header("content-type")
            .starts_with("application/openmetrics-text")
    );
    assert!(open.text.contains("# TYPE logkit_stored counter\n"));
    assert!(open.text.ends_with("# EOF\n") && open.text.matches("# EOF").count() == 1);
    // One family each: a monitoring system refuses a page that names one twice.
    for page in [&metrics.text, &open.text] {
        let mut families: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("# TYPE "))
            .collect();
        let n_families = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), n_families, "{page}");
    }
    let document = server.get("/openapi.json").await.json();
    assert_eq!(document["openapi"], "3.1.0");
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let method = method.to_uppercase().parse().unwrap();
            let url = server.url(&path.replace("{id}", "1"));
            let status = server
                .client
                .request(method, url)
                .send()
                .await
                .unwrap()
                .status();
            assert!(
                status != 404 && status != 405,
                "{path} is described and not there"
            );
        }
    }
    let described = document["paths"].as_object().unwrap().len();
    let source = include_str!("../../src/web/mod.rs");
    assert_eq!(
        source.matches(".route(\"").count(),
        described,
        "each route is described"
    );
}

#[tokio::test]
async fn a_search_uses_the_index_of_words_if_there_is_one() {
    let server = plain().await;
    for output in ["payment timed out", "timeout of the payment", "all is well"] {
        server.log(json!({"cmd": "pay", "output": output})).await;
    }
    let found = async |query: &str| -> Vec<i64> {
        let rows = server.get(&format!("/logs?q={query}")).await.json();
        let rows = rows.as_array().unwrap();
        let mut ids: Vec<i64> = rows.iter().map(|row| row["id"].as_i64().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    // Words in any order; without an index also the middle of one.
    assert_eq!(found("payment%20time").await, [1, 2]);
    assert_eq!(found("ayment").await, [1, 2]);
    let mut reader = logkit::query::Reader::open(server.database(), "logs").unwrap();
    reader.index_words().unwrap();
    assert_eq!(found("ayment").await, [0_i64; 0]);
    assert_eq!(found("payment%20time").await, [1, 2]);
    // What came after the index was made is found too.
    server
        .log(json!({"cmd": "pay", "output": "Payment timeout"}))
        .await;
    assert_eq!(found("payment%20time").await, [1, 2, 4]);
    let mut client = server.grpc().await;
    let query = QueryRequest {
        search: "TIMEOUT pay".into(),
        ..QueryRequest::default()
    };
    let answer = client.query_logs(query).await.unwrap().into_inner();
    assert_eq!(answer.total, 2);
}

#[tokio::test]
async fn secrets_are_blanked_unless_that_is_switched_off() {
    let body = json!({
        "cmd": "curl", "args": ["--token", "hunter2-long", "https://u:hunter2@example.org"],
        "output": "password=hunter2", "error": "api_key: hunter2", "extra": {"password": "hunter2"},
    });
    let server = plain().await;
    server.log(body.clone()).await;
    let text = server.get("/logs").await.text;
    assert!(!text.contains("hunter2"), "{text}");
    let server = start(|settings: &mut Settings| settings.redact = false).await;
    server.log(body).await;
    assert_eq!(server.get("/logs").await.text.matches("hunter2").count(), 5);
}

#[tokio::test]
async fn an_answer_ends_at_16_mib_and_the_next_one_goes_on() {
    let server = plain().await;
    let output = "x".repeat((1 << 20) - 100);
    for n in 0..24 {
        server
            .log(json!({"cmd": n.to_string(), "output": output}))
            .await;
    }
    for format in ["json", "ndjson"] {
        let (mut path, mut found) = (format!("/logs?limit=1000&format={format}"), Vec::new());
        loop {
            let answer = server.get(&path).await;
            assert_eq!(answer.status, 200);
            assert!(answer.text.len() <= 17 << 20, "{}", answer.text.len());
            let rows: Vec<Value> = if format == "json" {
                answer.json().as_array().unwrap().clone()
            } else {
                let lines = answer.text.lines();
                lines
                    .map(|line| serde_json::from_str(line).unwrap())
                    .collect()
            };
            found.extend(rows.iter().map(|row| row["id"].as_i64().unwrap()));
            match answer.header("x-next-cursor") {
                "" => break,
                cursor => path = format!("/logs?limit=1000&format={format}&cursor={cursor}"),
            }
        }
        let expected: Vec<i64> = (1..=24).rev().collect();
        assert_eq!(found, expected);
    }
    let mut grpc = server.grpc().await.max_decoding_message_size(17 << 20);
    let (mut cursor, mut n_found) = (String::new(), 0);
    loop {
        let query = QueryRequest {
            limit: 1000,
            cursor: cursor.clone(),
            ..QueryRequest::default()
        };
        let page = grpc.query_logs(query).await.unwrap().into_inner();
        n_found += page.entries.len();
        assert_eq!(page.total, 24);
        cursor = page.next_cursor;
        if cursor.is_empty() {
            break;
        }
    }
    assert_eq!(n_found, 24);
}

#[tokio::test]
async fn an_entry_of_a_batch_is_no_larger_than_one_alone() {
    let server = plain().await;
    let entry = json!({"cmd": "x", "output": "y".repeat(1 << 20)});
    let answer = server
        .post("/log/batch", json!([{"cmd": "a"}, entry]).to_string())
        .await;
    assert_eq!(answer.status, 413);
    assert_eq!(
        answer.json()["detail"],
        "Entry 1 is larger than 1048576 bytes"
    );
    assert!(server.rows().is_empty());
}

#[tokio::test]
async fn only_the_owner_reads_the_database() {
    use std::os::unix::fs::PermissionsExt as _;

    let server = plain().await;
    server.log(json!({"cmd": "x"})).await;
    for file in std::fs::read_dir(server.folder.path().join("data")).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file:?}");
    }
}
