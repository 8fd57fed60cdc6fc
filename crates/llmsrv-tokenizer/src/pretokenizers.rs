//! The pre-tokenizers that GGUF files name in `tokenizer.ggml.pre`.
//!
//! The patterns are facts: those of the tokenizer definitions published with the models.

/// One way to cut words, under all names that stand for it.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) names: &'static [&'static str],
    /// Applied one after the other.
    pub(crate) patterns: &'static [Pattern],
    /// A word that is a token as a whole is taken without merging.
    pub(crate) prefers_whole_words: bool,
    /// A text begins with the begin token where the file does not say otherwise.
    pub(crate) adds_bos: bool,
    /// Words are spelled in characters, with U+2581 for a space, not byte by byte.
    pub(crate) keeps_characters: bool,
    /// White space parts words and is no part of any.
    pub(crate) drops_spaces: bool,
}

/// A step of a pre-tokenizer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    /// Its matches and the gaps between them are words.
    Words(&'static str),
    /// As `Words`, and each match is cut into threes from the right.
    Thousands(&'static str),
}

/// Returns the pre-tokenizer of this name.
pub(crate) fn find(name: &str) -> Option<&'static Rules> {
    let name = if name.is_empty() { "default" } else { name };
    TABLE.iter().find(|rules| rules.names.contains(&name))
}

/// Returns the name of the pre-tokenizer that applies these patterns, as a published tokenizer
/// definition lists them; `None` = the cut of GPT-2. Where several do, one that agrees about whole words.
pub fn identify(patterns: &[Option<&str>], prefers_whole_words: bool) -> Option<&'static str> {
    let applies = |rules: &&Rules| {
        let own = rules.patterns.iter().map(|pattern| match pattern {
            Words(text) => Some(*text),
            Thousands(_) => None,
        });
        !rules.keeps_characters
            && rules.prefers_whole_words == prefers_whole_words
            && own.eq(patterns.iter().map(|pattern| Some(pattern.unwrap_or(GPT2))))
    };
    let rules = TABLE.iter().find(applies)?;
    rules.names.first().copied()
}

/// Returns what stands in for pre-tokenizers that are not known.
pub(crate) fn default() -> &'static Rules {
    &DEFAULT
}

use Pattern::{Thousands, Words};

/// Names, and what is applied to a text, one after the other.
const fn rules(names: &'static [&'static str], patterns: &'static [Pattern]) -> Rules {
    Rules {
        names,
        patterns,
        prefers_whole_words: false,
        adds_bos: false,
        keeps_characters: false,
        drops_spaces: false,
    }
}

impl Rules {
    const fn whole_words(self) -> Rules {
        Rules {
            prefers_whole_words: true,
            ..self
        }
    }

    const fn adds_bos(self) -> Rules {
        Rules {
            adds_bos: true,
            ..self
        }
    }

    const fn keeps_characters(self) -> Rules {
        Rules {
            keeps_characters: true,
            ..self
        }
    }

    const fn drops_spaces(self) -> Rules {
        Rules {
            drops_spaces: true,
            ..self
        }
    }
}

static DEFAULT: Rules = rules(
    &["default"],
    &[
        Words(r"[\p{P}$+<=>^~|]+"),
        Words(GPT2),
        Words(r"\p{N}+"),
        Words(r"[0-9][0-9][0-9]"),
    ],
);

/// All of them; rows are ordered by family.
pub(crate) static TABLE: &[Rules] = &[
    rules(DEFAULT.names, DEFAULT.patterns),
    // GPT-2 and those who split digits off or apart.
    rules(
        &[
            "gpt-2",
            "gpt2",
            "phi-2",
            "jina-es",
            "jina-de",
            "jina-v1-en",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ],
        &[Words(GPT2)],
    ),
    rules(
        &[
            "starcoder",
            "refact",
            "command-r",
            "smollm",
            "codeshell",
            "exaone",
            "minerva-7b",
            "mellum2",
        ],
        &[Words(r"\p{N}"), Words(GPT2)],
    ),
    rules(
        &["falcon"],
        &[
            Words(r"[\p{P}$+<=>^~|`]+"),
            Words(GPT2),
            Words(r"[0-9][0-9][0-9]"),
        ],
    ),
    rules(
        &["chameleon"],
        &[
            Words(r"<sentinel:[0-9]+>"),
            Words(r"IMGIMG[A-I]{1,4}Z"),
            Words(r"[\t\n]|    |  "),
            Words(r"\p{N}"),
            Words(r"[\p{P}!-/:-@\[-`{-~]"),
            Words(GPT2),
        ],
    )
    .adds_bos(),
    // CL100K and its relatives.
    rules(
        &[
            "llama3",
            "llama-v3",
            "llama-bpe",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        &[Words(LLAMA3)],
    )
    .whole_words()
    .adds_bos(),
    rules(&["dbrx", "smaug-bpe", "chatglm-bpe"], &[Words(LLAMA3)]),
    rules(&["glm4", "glm5"], &[Words(LLAMA3)]).whole_words(),
    rules(&["minicpm5"], &[Words(r"\p{N}{1,3}"), Words(MINICPM5)]).whole_words(),
    rules(
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "megrez",
            "stablelm2",
            "hunyuan",
            "solar-open",
            "grok-2",
        ],
        &[Words(QWEN2)],
    ),
    rules(&["qwen35"], &[Words(QWEN35)]),
    rules(&["ufakzeka"], &[Words(UFAKZEKA)]),
    rules(&["laguna"], &[Words(r"[^\n]+|\n+"), Words(QWEN2)]),
    rules(&["seed-coder"], &[Words(SEED_CODER)]),
    rules(
        &["bailingmoe", "bailingmoe2", "llada-moe"],
        &[Words(BAILING)],
    ),
    rules(&["exaone-moe"], &[Words(EXAONE_MOE)]),
    rules(&["jais-2"], &[Words(JAIS2)]),
    // O200K and its relatives: a word changes where a small letter is followed by a capital.
    rules(
        &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        &[Words(O200K)],
    ),
    rules(&["granite-embed-multi-97m"], &[Words(O200K)]).whole_words(),
    rules(
        &["tiny_aya", "cohere2moe"],
        &[Thousands(r"\d+\b"), Words(O200K)],
    ),
    rules(&["tekken"], &[Words(TEKKEN)])
        .whole_words()
        .adds_bos(),
    rules(&["kimi-k2"], &[Words(KIMI_K2)]),
    rules(
        &["youtu"],
        &[
            Words(r"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥\x{3040}-ゟ゠-ヿ]+"),
            Words(YOUTU),
        ],
    )
    .whole_words(),
    // DeepSeek and its relatives.
    rules(
        &["deepseek-llm"],
        &[
            Words(r"[\r\n]"),
            Words(DEEPSEEK_LETTERS),
            Words(r"\s?[!-/:-~！-／：-～‘-‟\x{3000}-。]+"),
            Words(r"\s+$"),
            Words(r"[一-龥\x{0800}-一가-\x{D7FF}]+"),
            Words(r"\p{N}+"),
        ],
    ),
    rules(
        &["deepseek-coder"],
        &[
            Words(r"[\r\n]"),
            Words(r"\s?\p{L}+"),
            Words(r"\s?\p{P}+"),
            Words(r"[一-龥\x{0800}-一가-\x{D7FF}]+"),
            Words(r"\p{N}"),
        ],
    ),
    rules(
        &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        &[Words(r"\p{N}{1,3}"), Words(KANA_AND_HAN), Words(DEEPSEEK3)],
    ),
    rules(
        &["spark2_5"],
        &[
            Words(r"\p{N}{1,3}"),
            Words(KANA_AND_HAN),
            Words(SPARK),
            Words(r"\p{N}"),
        ],
    ),
    rules(
        &["afmoe"],
        &[Thousands(r"\p{N}+"), Words(AFMOE_SCRIPTS), Words(DEEPSEEK3)],
    ),
    // Others.
    rules(&["poro-chat", "bloom", "gpt3-finnish"], &[Words(BLOOM)]),
    rules(&["viking"], &[Words(BLOOM), Words(r"\p{N}")]),
    rules(&["superbpe"], &[Words(r"\p{N}+"), Thousands(r"\d+")]),
    rules(
        &["gemma4", "granite-embed-multi-311m", "sarvam-moe"],
        &[Words(r"[^\n]+|\n+")],
    )
    .keeps_characters(),
    // Jina Embeddings 2 for Chinese.
    rules(&["whitespace"], &[Words(r"\S+")])
        .keeps_characters()
        .drops_spaces(),
];

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const MINICPM5: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const UFAKZEKA: &str =
    r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED_CODER: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
const BAILING: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const EXAONE_MOE: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+";
const JAIS2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const KIMI_K2: &str = r"\p{Han}+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const YOUTU: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SPARK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"##;
const AFMOE_SCRIPTS: &str = r"[一-鿿㐀-䶿\x{F900}-\x{FAFF}\x{3040}-ゟ゠-ヿ･-ﾟ⼀-\x{2FDF}เ-\x{0E7F}\x{0E80}-\x{0EFF}ក-\x{17FF}က-႟ꩠ-ꩿꧠ-\x{A9FF}가-\x{D7AF}ᄀ-ᇿ]+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
const KANA_AND_HAN: &str = r"[一-龥\x{3040}-ゟ゠-ヿ]+";
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";
/// The letters with case that the model's authors list, with the white space before them.
const DEEPSEEK_LETTERS: &str = r"\s?[A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+";

/// The end of a pattern that cuts white space into runs of powers of two.
pub(crate) const CASCADE: &str = r"|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}";
