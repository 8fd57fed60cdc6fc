//! The formats of tool calls: one row each.

/// One format. In its texts `$name` is the tool's name, `$index` the number of the call, and the
/// arguments are `$json` (an object), `$python` (`a=1, b="x"`), `$quoted` or `$escaped` (`a:1,b:x`, strings in
/// marks of their own, [`STRINGS`]), or one of [`TAGS`], which put each argument between tags.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// What a template with the format mentions.
    pub(super) marks: &'static [&'static str],
    pub(super) begin: &'static str,
    pub(super) call: &'static str,
    /// Between two calls; nothing when there can be one only.
    pub(super) between: Option<&'static str>,
    pub(super) end: &'static str,
}

/// The formats, the most telling marks first.
pub(super) static FORMATS: &[Row] = &[
    Row {
        name: "harmony",
        marks: &["<|channel|>", "<|message|>"],
        begin: "",
        call: "<|channel|>commentary to=functions.$name <|constrain|>json<|message|>$json",
        between: None,
        end: "",
    },
    Row {
        name: "gemma4",
        marks: &["<|tool_call>"],
        begin: "",
        call: "<|tool_call>call:$name{$quoted}<tool_call|>",
        between: Some(""),
        end: "",
    },
    Row {
        name: "functiongemma",
        marks: &["<start_function_call>"],
        begin: "",
        call: "<start_function_call>call:$name{$escaped}<end_function_call>",
        between: Some(""),
        end: "",
    },
    Row {
        name: "minimax",
        marks: &["<minimax:tool_call>"],
        begin: "<minimax:tool_call>\n",
        call: "<invoke name=\"$name\">\n$invoked</invoke>\n",
        between: Some(""),
        end: "</minimax:tool_call>",
    },
    // Templates put the tags together of parts.
    Row {
        name: "deepseek-v32",
        marks: &["｜DSML｜", "function_calls>"],
        begin: "<｜DSML｜function_calls>\n",
        call: "<｜DSML｜invoke name=\"$name\">\n$dsml</｜DSML｜invoke>\n",
        between: Some(""),
        end: "</｜DSML｜function_calls>",
    },
    Row {
        name: "deepseek-v4",
        marks: &["｜DSML｜", "tool_calls>"],
        begin: "<｜DSML｜tool_calls>\n",
        call: "<｜DSML｜invoke name=\"$name\">\n$dsml</｜DSML｜invoke>\n",
        between: Some(""),
        end: "</｜DSML｜tool_calls>",
    },
    Row {
        name: "seed",
        marks: &["<seed:tool_call>"],
        begin: "",
        call: "<seed:tool_call>\n<function=$name>\n$inline</function>\n</seed:tool_call>",
        between: Some("\n"),
        end: "",
    },
    Row {
        name: "glm",
        marks: &["<tool_call>", "<arg_key>"],
        begin: "",
        call: "<tool_call>$name\n$pairs</tool_call>",
        between: Some("\n"),
        end: "",
    },
    Row {
        name: "olmo3",
        marks: &["<function_calls>"],
        begin: "<function_calls>\n",
        call: "$name($python)",
        between: Some("\n"),
        end: "\n</function_calls>",
    },
    Row {
        name: "hunyuan",
        marks: &["<tool_calls>"],
        begin: "<tool_calls>[",
        call: "{\"name\": \"$name\", \"arguments\": $json}",
        between: Some(", "),
        end: "]</tool_calls>",
    },
    Row {
        name: "nemotron",
        marks: &["<TOOLCALL>"],
        begin: "<TOOLCALL>[",
        call: "{\"name\": \"$name\", \"arguments\": $json}",
        between: Some(", "),
        end: "]</TOOLCALL>",
    },
    Row {
        name: "minicpm5",
        marks: &["<function name=\"", "<param name=\""],
        begin: "",
        call: "<function name=\"$name\">$params</function>",
        between: Some("\n"),
        end: "",
    },
    Row {
        name: "qwen-coder",
        marks: &["<function=", "<parameter="],
        begin: "",
        call: "<tool_call>\n<function=$name>\n$tagged</function>\n</tool_call>",
        between: Some("\n"),
        end: "",
    },
    Row {
        name: "kimi",
        marks: &["<|tool_calls_section_begin|>"],
        begin: "<|tool_calls_section_begin|>",
        call: "<|tool_call_begin|>functions.$name:$index<|tool_call_argument_begin|>$json<|tool_call_end|>",
        between: Some(""),
        end: "<|tool_calls_section_end|>",
    },
    Row {
        name: "deepseek-fenced",
        marks: &["<｜tool▁calls▁begin｜>", "```json"],
        begin: "<｜tool▁calls▁begin｜>",
        call: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n```json\n$json\n```<｜tool▁call▁end｜>",
        between: Some("\n"),
        end: "<｜tool▁calls▁end｜>",
    },
    Row {
        name: "deepseek",
        marks: &["<｜tool▁calls▁begin｜>"],
        begin: "<｜tool▁calls▁begin｜>",
        call: "<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$json<｜tool▁call▁end｜>",
        between: Some(""),
        end: "<｜tool▁calls▁end｜>",
    },
    Row {
        name: "lfm",
        marks: &["<|tool_call_start|>"],
        begin: "<|tool_call_start|>[",
        call: "$name($python)",
        between: Some(", "),
        end: "]<|tool_call_end|>",
    },
    Row {
        name: "command-r",
        marks: &["<|START_ACTION|>"],
        begin: "<|START_ACTION|>[\n",
        call: "    {\"tool_call_id\": \"$index\", \"tool_name\": \"$name\", \"parameters\": $json}",
        between: Some(",\n"),
        end: "\n]<|END_ACTION|>",
    },
    Row {
        name: "mistral-named",
        marks: &["[TOOL_CALLS]", "[ARGS]"],
        begin: "",
        call: "[TOOL_CALLS]$name[ARGS]$json",
        between: Some(""),
        end: "",
    },
    Row {
        name: "mistral",
        marks: &["[TOOL_CALLS]"],
        begin: "[TOOL_CALLS] [",
        call: "{\"name\": \"$name\", \"arguments\": $json}",
        between: Some(", "),
        end: "]",
    },
    Row {
        name: "granite",
        marks: &["<|tool_call|>"],
        begin: "<|tool_call|>[",
        call: "{\"name\": \"$name\", \"arguments\": $json}",
        between: Some(", "),
        end: "]",
    },
    Row {
        name: "hermes",
        marks: &["<tool_call>"],
        begin: "",
        call: "<tool_call>\n{\"name\": \"$name\", \"arguments\": $json}\n</tool_call>",
        between: Some("\n"),
        end: "",
    },
    Row {
        name: "pythonic",
        marks: &["[func_name1("],
        begin: "[",
        call: "$name($python)",
        between: Some(", "),
        end: "]",
    },
    Row {
        name: "llama",
        marks: &["\"parameters\": "],
        begin: "",
        call: "{\"name\": \"$name\", \"parameters\": $json}",
        between: None,
        end: "",
    },
];

/// A JSON object, after a tag of the template's own if it has one.
pub(super) static BARE: Row = Row {
    name: "json",
    marks: &[],
    begin: "",
    call: "{\"name\": \"$name\", \"arguments\": $json}",
    between: None,
    end: "",
};

/// How each argument of a call stands between tags: `before KEY middle VALUE after`.
pub(super) struct Tags {
    pub(super) variable: &'static str,
    pub(super) before: &'static str,
    /// Where the value is text, and where it is JSON.
    pub(super) middle: [&'static str; 2],
    pub(super) after: &'static str,
    /// What text with characters of XML, or of several lines, stands between; other text does not.
    pub(super) wrap: Option<(&'static str, &'static str)>,
}

pub(super) static TAGS: &[Tags] = &[
    Tags {
        variable: "tagged",
        before: "<parameter=",
        middle: [">\n"; 2],
        after: "\n</parameter>\n",
        wrap: None,
    },
    Tags {
        variable: "inline",
        before: "<parameter=",
        middle: [">"; 2],
        after: "</parameter>\n",
        wrap: None,
    },
    Tags {
        variable: "pairs",
        before: "<arg_key>",
        middle: ["</arg_key>\n<arg_value>"; 2],
        after: "</arg_value>\n",
        wrap: None,
    },
    Tags {
        variable: "invoked",
        before: "<parameter name=\"",
        middle: ["\">"; 2],
        after: "</parameter>\n",
        wrap: None,
    },
    Tags {
        variable: "dsml",
        before: "<｜DSML｜parameter name=\"",
        middle: ["\" string=\"true\">", "\" string=\"false\">"],
        after: "</｜DSML｜parameter>\n",
        wrap: None,
    },
    Tags {
        variable: "params",
        before: "<param name=\"",
        middle: ["\">"; 2],
        after: "</param>",
        wrap: Some(("<![CDATA[", "]]>")),
    },
];

/// What stands on either side of a string.
pub(super) static STRINGS: &[(&str, &str)] = &[("quoted", "<|\"|>"), ("escaped", "<escape>")];

/// Tags in the texts above that may be control tokens.
pub(super) const CONTROLS: &[&str] = &[
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<tool_call>",
    "</tool_call>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_end|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
    "<|tool_call_start|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|tool_call|>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "<start_function_call>",
    "<end_function_call>",
    "<escape>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    "｜DSML｜",
    "<seed:tool_call>",
    "</seed:tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<TOOLCALL>",
    "</TOOLCALL>",
    "<function",
    "</function>",
    "<param",
    "</param>",
];
