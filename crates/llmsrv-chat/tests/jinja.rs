//! Jinja templates against Jinja2: `fixtures/jinja.json` holds templates with what Jinja2 makes of them
//! (`fixtures/jinja_oracle.py` fills that in).

use jiff::{Timestamp, Zoned, tz::TimeZone};
use llmsrv_api::native::{Message, Tool};
use llmsrv_chat::{Error, Prompt, Template, Think};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    name: String,
    template: String,
    messages: Vec<Message>,
    tools: Vec<Tool>,
    think: Option<bool>,
    expected: Option<String>,
    refused: Option<String>,
}

fn render(case: &Case, now: Zoned) -> Result<String, Error> {
    let mut prompt = Prompt::new(&case.messages, now);
    prompt.tools = &case.tools;
    prompt.think = case.think.map(|on| if on { Think::On } else { Think::Off });
    Template::jinja(&case.template, "<s>", "</s>")?.render(&prompt)
}

#[test]
fn renders_what_jinja2_renders() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("fixtures/jinja.json")).unwrap();
    assert!(cases.len() > 40);
    // The moment at which the oracle ran.
    let now: Timestamp = "2026-08-21T10:11:12Z".parse().unwrap();
    let mut wrong = Vec::new();
    for case in &cases {
        let result = render(case, now.to_zoned(TimeZone::UTC));
        let right = match (&case.expected, &case.refused, &result) {
            (Some(expected), _, Ok(text)) => text == expected,
            // A conversation that is refused may be accepted in another form.
            (None, Some(text), Err(Error::Refused(reason))) => text == reason,
            (None, Some(_), Ok(_)) => case.name.starts_with("strict"),
            (None, None, Err(Error::Syntax(_) | Error::Render(_))) => true,
            _ => false,
        };
        if !right {
            wrong.push(format!(
                "{}: {result:?}\nexpected {:?}",
                case.name, case.expected
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
