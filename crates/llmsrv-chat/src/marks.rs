//! Texts that templates mention and answers hold: what announces calls, and the channels of gpt-oss.

/// Texts that announce calls in families of models. They are looked for whatever the template says:
/// answers hold them only to call.
pub(crate) const TAGS: &[&str] = &[
    // Hermes, Qwen.
    "<tool_call>",
    // Mistral.
    "[TOOL_CALLS]",
    // Granite.
    "<|tool_call|>",
    // DeepSeek.
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    // Kimi.
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    // LFM.
    "<|tool_call_start|>",
    // Command R.
    "<|START_ACTION|>",
    // Llama 3.1 and later.
    "<|python_tag|>",
    // Qwen coder; Llama 3.1 with the user's tools.
    "<function=",
    // Seed OSS.
    "<seed:tool_call>",
    // HunYuan.
    "<tool_calls>",
    // Nemotron Nano 2, Llama Nemotron.
    "<TOOLCALL>",
    // Those of `blocks`: Gemma 4, FunctionGemma, MiniMax, DeepSeek V3.2 and V4, OLMo 3, MiniCPM 5.
    "<|tool_call>",
    "<start_function_call>",
    "<minimax:tool_call>",
    "<｜DSML｜function_calls>",
    "<｜DSML｜tool_calls>",
    "<function_calls>",
    "<function name=\"",
];

/// The channels of gpt-oss.
pub(crate) mod harmony {
    /// What a template of this format mentions.
    pub(crate) const MARKS: [&str; 2] = ["<|channel|>", "<|message|>"];
    /// What stands around the thinking part.
    pub(crate) const THINKING: (&str, &str) = ("<|channel|>analysis<|message|>", "<|end|>");
    /// The header of the thinking part.
    pub(crate) const ANALYSIS: &str = "<|channel|>analysis";
    /// The header of the answer, after which a grammar begins.
    pub(crate) const FINAL: &str = "<|channel|>final<|message|>";
    /// The end of the thinking part and the begin of what follows, after which a forced call begins.
    pub(crate) const NEXT: &str = "<|end|><|start|>assistant";
}
