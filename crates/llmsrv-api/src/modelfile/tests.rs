use proptest::prelude::*;
use serde_json::json;

use super::*;

fn parse(text: &str) -> Result<Vec<Instruction>, String> {
    Modelfile::parse(text.as_bytes())
        .map(|modelfile| modelfile.instructions)
        .map_err(|error| error.to_string())
}

/// The one instruction after `FROM x`.
fn one(text: &str) -> Instruction {
    let parsed =
        parse(&format!("FROM x\n{text}")).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(parsed.len(), 2, "{text}: {parsed:?}");
    parsed[1].clone()
}

#[test]
fn every_instruction_is_understood() {
    use Instruction as I;
    let text = "\u{feff}# a comment\n\n  from ./a b.gguf  \r\nFrom proj.gguf\n\tPARAMETER stop \"<|a|> \"\n\
        PARAMETER stop <|b|>\nparameter temperature 0.2\nTEMPLATE \"\"\"{{ if .System }}\n\n# no comment\n{{ end }}\"\"\"\n\
        SYSTEM You are \"brief\".\nLICENSE \"\"\"\nMIT\n\"\"\"  \nADAPTER ./lora\nMESSAGE user Hi!\n\
        MESSAGE Assistant \"Hello.\nYou?\"\nREQUIRES 0.14.0\nDRAFT d\nRENDERER r\nPARSER p";
    let expected = vec![
        I::From("./a b.gguf".into()),
        I::From("proj.gguf".into()),
        I::Parameter {
            name: "stop".into(),
            value: "<|a|> ".into(),
        },
        I::Parameter {
            name: "stop".into(),
            value: "<|b|>".into(),
        },
        I::Parameter {
            name: "temperature".into(),
            value: "0.2".into(),
        },
        I::Template("{{ if .System }}\n\n# no comment\n{{ end }}".into()),
        I::System("You are \"brief\".".into()),
        I::License("\nMIT\n".into()),
        I::Adapter("./lora".into()),
        I::Message {
            role: "user".into(),
            content: "Hi!".into(),
        },
        I::Message {
            role: "assistant".into(),
            content: "Hello.\nYou?".into(),
        },
        I::Requires("0.14.0".into()),
        I::Draft("d".into()),
        I::Renderer("r".into()),
        I::Parser("p".into()),
    ];
    assert_eq!(parse(text).unwrap(), expected);
    let utf16 =
        |unit: fn(u16) -> [u8; 2]| -> Vec<u8> { text.encode_utf16().flat_map(unit).collect() };
    for bytes in [utf16(u16::to_le_bytes), utf16(u16::to_be_bytes)] {
        assert_eq!(Modelfile::parse(&bytes).unwrap().instructions, expected);
    }
}

#[test]
fn quotes_hold_what_stands_between_them() {
    for (text, value) in [
        ("SYSTEM ", ""),
        ("SYSTEM", ""),
        ("SYSTEM \"\"", ""),
        ("SYSTEM \"\"\"\"\"\"", ""),
        ("SYSTEM \"a\" b\nc\"", "a\" b\nc"),
        ("SYSTEM \"\"\"a\"\"\" b\n\"\"\"", "a\"\"\" b\n"),
        ("SYSTEM \"\"\"say \"x\"\"\"\"", "say \"x\""),
        ("SYSTEM a\"b\"", "a\"b\""),
        ("SYSTEM \"a\\n\"", "a\\n"),
        ("SYSTEM \"\"\"\r\na\r\n\"\"\"", "\r\na\r\n"),
    ] {
        assert_eq!(one(text), Instruction::System(value.into()), "{text:?}");
    }
}

#[test]
fn mistakes_are_named_with_their_line() {
    let command = |line| format!("(line {line}): {UNKNOWN_INSTRUCTION}");
    for (text, error) in [
        ("", "no FROM line".to_owned()),
        ("# FROM x\nSYSTEM y", "no FROM line".into()),
        ("FROM x\nFORM y", command(2)),
        ("FROM: x", command(1)),
        ("FROM x\nSYSTEM \"\"\"a\nb\"\"\"\nhello world", command(4)),
        (
            "FROM",
            "(line 1): FROM needs a model name, a file or a folder".into(),
        ),
        (
            "FROM \"\"",
            "(line 1): FROM needs a model name, a file or a folder".into(),
        ),
        (
            "FROM x\n\nPARAMETER",
            "(line 3): PARAMETER needs a name and a value".into(),
        ),
        (
            "FROM x\nPARAMETER top 1",
            "(line 2): unknown parameter 'top'".into(),
        ),
        (
            "FROM x\nPARAMETER top_k many",
            "(line 2): invalid int value [many] of parameter 'top_k'".into(),
        ),
        (
            "FROM x\nPARAMETER stop",
            "(line 2): invalid string value [] of parameter 'stop'".into(),
        ),
        (
            "FROM x\nPARAMETER top_p",
            "(line 2): invalid float value [] of parameter 'top_p'".into(),
        ),
        (
            "FROM x\nPARAMETER temperature inf",
            "(line 2): invalid float value [inf] of parameter 'temperature'".into(),
        ),
        (
            "FROM x\nPARAMETER use_mmap maybe",
            "(line 2): invalid bool value [maybe] of parameter 'use_mmap'".into(),
        ),
        (
            "FROM x\nMESSAGE tool hi",
            "(line 2): message role must be one of \"system\", \"user\", or \"assistant\"".into(),
        ),
        (
            "FROM x\nSYSTEM \"\"\"a\n\"\nb",
            "(line 2): the text has no closing \"\"\"".into(),
        ),
    ] {
        assert_eq!(parse(text), Err(error), "{text:?}");
    }
    for bytes in [
        &b"FROM \xff"[..],
        b"\xff\xfeF",
        b"\xff\xfe\x00\xd8\x00\x00",
        b"\xfe\xff\xdc\x00",
    ] {
        assert_eq!(Modelfile::parse(bytes), Err(Error::Encoding), "{bytes:?}");
    }
}

#[test]
fn a_request_has_what_the_instructions_say() {
    let text = "FROM x\nPARAMETER stop a\nPARAMETER stop b\nPARAMETER temperature 1\nPARAMETER temperature 0.5\n\
        PARAMETER num_ctx 4096\nPARAMETER use_mmap False\nPARAMETER mirostat 2\nTEMPLATE t\nSYSTEM one\nSYSTEM two\n\
        LICENSE a\nLICENSE b\nMESSAGE user hi\nADAPTER l";
    let modelfile = Modelfile::parse(text.as_bytes()).unwrap();
    assert_eq!(
        Value::Object(modelfile.request()),
        json!({
            "template": "t",
            "system": "two",
            "license": ["a", "b"],
            "messages": [{"role": "user", "content": "hi"}],
            "parameters": {"stop": ["a", "b"], "temperature": 0.5, "num_ctx": 4096, "use_mmap": false},
        })
    );
    assert_eq!(modelfile.from().collect::<Vec<_>>(), ["x"]);
    assert_eq!(modelfile.adapters().collect::<Vec<_>>(), ["l"]);
    assert_eq!(
        modelfile.ignored_parameters().collect::<Vec<_>>(),
        ["mirostat"]
    );
}

#[test]
fn a_text_that_no_quotes_can_hold_is_not_printed() {
    let modelfile = Modelfile {
        instructions: vec![Instruction::System("a\"\nb\"\"\"\nc".into())],
    };
    assert_eq!(modelfile.print(), Err(Error::Unquotable));
}

/// Texts of the kind that quoting can go wrong with.
fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a\"\\n\\r #é]{0,12}", "\\PC{0,20}", any::<String>()]
}

fn instructions() -> impl Strategy<Value = Instruction> {
    let role = prop::sample::select(&ROLES[..]);
    let filled = || text().prop_filter("not empty", |text| !text.trim().is_empty());
    prop_oneof![
        filled().prop_map(Instruction::From),
        filled().prop_map(Instruction::Adapter),
        filled().prop_map(Instruction::Requires),
        text().prop_map(Instruction::Template),
        text().prop_map(Instruction::System),
        text().prop_map(Instruction::License),
        filled().prop_map(|value| Instruction::Parameter {
            name: "stop".into(),
            value
        }),
        any::<i64>().prop_map(|value| Instruction::Parameter {
            name: "seed".into(),
            value: value.to_string()
        }),
        (role, text()).prop_map(|(role, content)| Instruction::Message {
            role: role.into(),
            content
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_printed_is_parsed_again(mut instructions in prop::collection::vec(instructions(), 0..6)) {
        instructions.insert(0, Instruction::From("x".into()));
        let modelfile = Modelfile { instructions };
        match modelfile.print() {
            Ok(text) => prop_assert_eq!(Modelfile::parse(text.as_bytes()), Ok(modelfile), "{:?}", text),
            Err(error) => prop_assert_eq!(error, Error::Unquotable),
        }
    }

    #[test]
    fn what_is_parsed_can_be_printed(text in "(FROM|SYSTEM|MESSAGE user| |a|\"|\"\"\"|\\n|\\r|#){0,20}") {
        if let Ok(modelfile) = Modelfile::parse(text.as_bytes()) {
            let printed = modelfile.print().unwrap();
            prop_assert_eq!(Modelfile::parse(printed.as_bytes()), Ok(modelfile), "{:?}", printed);
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..100), text in "\\PC*") {
        drop(Modelfile::parse(&bytes));
        drop(Modelfile::parse(text.as_bytes()));
    }
}
