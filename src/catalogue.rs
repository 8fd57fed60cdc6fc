//! Models that can be pulled, for those who do not know a name yet.
//!
//! Names, sizes and licences are those that the public library gives at [`DATE`]; whether a model
//! runs is asked of this build.

pub mod refreshed;

use clap_complete::CompletionCandidate;

/// When the pages were read.
pub const DATE: &str = "2026-11";

/// A model in one or more sizes.
pub struct Entry {
    /// What is pulled.
    pub name: &'static str,
    /// `general.architecture` of its files.
    pub architecture: &'static str,
    /// What it is for, in a word.
    pub about: &'static str,
    /// What it can do beside text, in the words of `/api/show`.
    pub can: &'static [&'static str],
    /// The longest context, in tokens.
    pub context: u32,
    /// The licence of the weights.
    pub licence: &'static str,
    /// Its sizes, smallest first.
    pub sizes: &'static [Size],
}

/// One size of a model.
pub struct Size {
    /// The tag.
    pub tag: &'static str,
    /// Megabytes to download.
    pub megabytes: u32,
    /// Of a hundred bytes of weights, how many are read for a token: experts rest.
    pub active: u8,
}

impl Size {
    /// Bytes to download.
    pub fn bytes(&self) -> u64 {
        u64::from(self.megabytes) * 1_000_000
    }

    /// Bytes of memory it takes with a context of a few thousand tokens. Weights are packed anew,
    /// and beside them lie the KV cache and the buffers of a step.
    pub fn memory(&self) -> u64 {
        self.bytes() / 20 * 23 + (512 << 20)
    }

    /// Tokens in a second, where memory gives so many bytes: decoding ends there.
    pub fn tokens_per_second(&self, bytes_per_second: f64) -> f64 {
        bytes_per_second * 100.0 / (self.bytes() as f64 * f64::from(self.active))
    }
}

/// A dense model.
const fn dense(tag: &'static str, megabytes: u32) -> Size {
    Size {
        tag,
        megabytes,
        active: 100,
    }
}

/// A mixture of experts, of which a token reads `active` in a hundred bytes.
const fn sparse(tag: &'static str, megabytes: u32, active: u8) -> Size {
    Size {
        tag,
        megabytes,
        active,
    }
}

const CHAT: &str = "chat";
const CODE: &str = "code";
const VECTORS: &str = "search";
const TOOLS: &[&str] = &["tools"];
const THINKS: &[&str] = &["tools", "thinking"];
const SEES: &[&str] = &["vision"];
const THINKS_SEES: &[&str] = &["tools", "thinking", "vision"];
const EMBEDS: &[&str] = &["embedding"];
const APACHE: &str = "Apache-2.0";
const MIT: &str = "MIT";
const LLAMA: &str = "Llama";
const GEMMA: &str = "Gemma";

macro_rules! entries {
    ($($name:literal $architecture:literal $about:ident $can:expr, $context:literal $licence:expr, [$($size:expr),+];)*) => {
        &[$(Entry {
            name: $name,
            architecture: $architecture,
            about: $about,
            can: $can,
            context: $context,
            licence: $licence,
            sizes: &[$($size),+],
        }),*]
    };
}

/// The models, those that people pull most first.
pub const MODELS: &[Entry] = entries! {
    "qwen3" "qwen3" CHAT THINKS, 40960 APACHE,
        [dense("0.6b", 523), dense("1.7b", 1400), dense("4b", 2500), dense("8b", 5200), dense("14b", 9300), dense("32b", 20000)];
    "qwen3:30b" "qwen3moe" CHAT THINKS, 262_144 APACHE, [sparse("30b", 19000, 11)];
    "qwen3.5" "qwen35" CHAT THINKS_SEES, 262_144 APACHE,
        [dense("0.8b", 1000), dense("2b", 2700), dense("4b", 3400), dense("9b", 6600), dense("27b", 17000)];
    "qwen3.5:35b" "qwen35moe" CHAT THINKS_SEES, 262_144 APACHE, [sparse("35b", 24000, 10)];
    "gemma4" "gemma4" CHAT THINKS_SEES, 131_072 APACHE,
        [dense("e2b", 7200), dense("e4b", 9600), sparse("26b", 18000, 16), dense("31b", 20000)];
    "gpt-oss" "gpt-oss" CHAT THINKS, 131_072 APACHE, [sparse("20b", 14000, 18), sparse("120b", 65000, 5)];
    "llama3.2" "llama" CHAT TOOLS, 131_072 LLAMA, [dense("1b", 1300), dense("3b", 2000)];
    "llama3.1" "llama" CHAT TOOLS, 131_072 LLAMA, [dense("8b", 4900), dense("70b", 43000)];
    "llama3.3" "llama" CHAT TOOLS, 131_072 LLAMA, [dense("70b", 43000)];
    "gemma3" "gemma3" CHAT SEES, 131_072 GEMMA, [dense("4b", 3300), dense("12b", 8100), dense("27b", 17000)];
    "gemma3:1b" "gemma3" CHAT &[], 32768 GEMMA, [dense("270m", 292), dense("1b", 815)];
    "qwen3-vl" "qwen3vl" CHAT &["vision", "tools", "thinking"], 262_144 APACHE,
        [dense("2b", 1900), dense("4b", 3300), dense("8b", 6100), dense("32b", 21000)];
    "qwen3-vl:30b" "qwen3vlmoe" CHAT &["vision", "tools", "thinking"], 262_144 APACHE, [sparse("30b", 20000, 12)];
    "qwen2.5vl" "qwen2vl" CHAT SEES, 128_000 APACHE, [dense("7b", 6000), dense("32b", 21000)];
    "deepseek-r1" "qwen2" CHAT &["thinking"], 131_072 MIT,
        [dense("1.5b", 1100), dense("7b", 4700), dense("14b", 9000), dense("32b", 20000)];
    "deepseek-r1:8b" "qwen3" CHAT THINKS, 131_072 MIT, [dense("8b", 5200)];
    "qwen2.5-coder" "qwen2" CODE &["tools", "insert"], 32768 APACHE,
        [dense("0.5b", 398), dense("1.5b", 986), dense("7b", 4700), dense("14b", 9000), dense("32b", 20000)];
    "qwen3-coder" "qwen3moe" CODE TOOLS, 262_144 APACHE, [sparse("30b", 19000, 11)];
    "devstral-small-2" "mistral3" CODE TOOLS, 393_216 APACHE, [dense("24b", 15000)];
    "qwen2.5" "qwen2" CHAT TOOLS, 32768 APACHE,
        [dense("0.5b", 398), dense("1.5b", 986), dense("7b", 4700), dense("14b", 9000), dense("32b", 20000)];
    "mistral" "llama" CHAT TOOLS, 32768 APACHE, [dense("7b", 4400)];
    "mistral-nemo" "llama" CHAT TOOLS, 131_072 APACHE, [dense("12b", 7100)];
    "mistral-small" "llama" CHAT TOOLS, 32768 APACHE, [dense("24b", 14000)];
    "mixtral" "llama" CHAT TOOLS, 32768 APACHE, [sparse("8x7b", 26000, 28)];
    "phi4" "phi3" CHAT &[], 16384 MIT, [dense("14b", 9100)];
    "phi4-mini" "phi3" CHAT TOOLS, 131_072 MIT, [dense("3.8b", 2500)];
    "gemma2" "gemma2" CHAT &[], 8192 GEMMA, [dense("2b", 1600), dense("9b", 5400), dense("27b", 16000)];
    "smollm2" "llama" CHAT TOOLS, 8192 APACHE, [dense("135m", 271), dense("360m", 726), dense("1.7b", 1800)];
    "tinyllama" "llama" CHAT &[], 2048 APACHE, [dense("1.1b", 638)];
    "granite3.3" "granite" CHAT TOOLS, 131_072 APACHE, [dense("2b", 1500), dense("8b", 4900)];
    "olmo2" "olmo2" CHAT &[], 4096 APACHE, [dense("7b", 4500), dense("13b", 8400)];
    "llava" "llama" CHAT SEES, 32768 APACHE, [dense("7b", 4700), dense("13b", 8000)];
    "deepseek-coder" "llama" CODE &[], 16384 "DeepSeek", [dense("1.3b", 776), dense("6.7b", 3800)];
    "codellama" "llama" CODE &[], 16384 LLAMA, [dense("7b", 3800), dense("13b", 7400), dense("34b", 19000)];
    "codegemma" "gemma" CODE &["insert"], 8192 GEMMA, [dense("2b", 1600), dense("7b", 5000)];
    "starcoder2" "starcoder2" CODE &[], 16384 "OpenRAIL-M", [dense("3b", 1700), dense("7b", 4000), dense("15b", 9100)];
    "deepseek-coder-v2" "deepseek2" CODE &[], 163_840 "DeepSeek", [sparse("16b", 8900, 17)];
    "glm-4.7-flash" "deepseek2" CHAT THINKS, 202_752 MIT, [sparse("latest", 19000, 12)];
    "nemotron-3-nano:4b" "nemotron_h" CHAT THINKS, 262_144 "NVIDIA", [dense("4b", 2800)];
    "nemotron-3-nano" "nemotron_h_moe" CHAT THINKS, 1_048_576 "NVIDIA", [sparse("30b", 24000, 12)];
    "gemma3n" "gemma3n" CHAT &[], 32768 GEMMA, [dense("e2b", 5600), dense("e4b", 7500)];
    "llama3.2-vision" "mllama" CHAT &[], 131_072 LLAMA, [dense("11b", 7800)];
    "nomic-embed-text" "nomic-bert" VECTORS EMBEDS, 2048 APACHE, [dense("v1.5", 274)];
    "mxbai-embed-large" "bert" VECTORS EMBEDS, 512 APACHE, [dense("335m", 670)];
    "all-minilm" "bert" VECTORS EMBEDS, 512 APACHE, [dense("22m", 46), dense("33m", 67)];
    "bge-m3" "bert" VECTORS EMBEDS, 8192 MIT, [dense("567m", 1200)];
    "qwen3-embedding" "qwen3" VECTORS EMBEDS, 32768 APACHE, [dense("0.6b", 639), dense("4b", 2500), dense("8b", 4700)];
    "embeddinggemma" "gemma-embedding" VECTORS EMBEDS, 2048 GEMMA, [dense("300m", 622)];
};

impl Entry {
    /// The name without a tag: some rows are single sizes of a model whose other sizes differ.
    pub fn base(&self) -> &'static str {
        self.name.split(':').next().unwrap_or(self.name)
    }

    /// What is pulled for a size.
    pub fn full(&self, size: &Size) -> String {
        format!("{}:{}", self.base(), size.tag)
    }

    /// Whether all words are part of what is said of it, whatever their case.
    pub fn matches(&self, words: &[String]) -> bool {
        let said = [self.name, self.architecture, self.about, self.licence];
        says(words, &[&said[..], self.can].concat())
    }
}

/// Whether all words are part of what is said, whatever their case.
pub fn says(words: &[String], said: &[&str]) -> bool {
    let said = said.join(" ").to_lowercase();
    words.iter().all(|word| said.contains(&word.to_lowercase()))
}

/// Returns the model that was probably meant by a name that nobody has.
pub fn meant(typed: &str) -> Option<&'static str> {
    let base = typed.split(':').next().unwrap_or(typed);
    if MODELS.iter().any(|model| model.base() == base) {
        return None;
    }
    llmsrv_config::nearest(base, MODELS.iter().map(Entry::base))
}

/// Returns all models and sizes, for shells that complete.
pub fn candidates() -> Vec<CompletionCandidate> {
    let models = MODELS.iter();
    models
        .flat_map(|model| model.sizes.iter().map(|size| model.full(size)))
        .map(CompletionCandidate::new)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_row_is_a_model_that_is_known_here() {
        let known: BTreeSet<&str> = llmsrv_models::architectures()
            .chain(llmsrv_models::encoders())
            .chain(llmsrv_models::not_yet().map(|(name, _)| name))
            .collect();
        let mut names = BTreeSet::new();
        for model in MODELS {
            assert!(known.contains(model.architecture), "{}", model.name);
            assert!(!model.sizes.is_empty(), "{}", model.name);
            for size in model.sizes {
                assert!(names.insert(model.full(size)), "{} twice", model.full(size));
                assert!((1..=100).contains(&size.active), "{}", model.full(size));
            }
            assert!(
                model.sizes.is_sorted_by_key(|size| size.megabytes),
                "{}",
                model.name
            );
        }
    }

    #[test]
    fn words_find_what_they_are_about() {
        let found = |words: &[&str]| -> Vec<&str> {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let found = MODELS.iter().filter(|model| model.matches(&words));
            found.map(|model| model.name).collect()
        };
        assert!(found(&["code", "tools"]).contains(&"qwen2.5-coder"));
        assert_eq!(found(&["VISION", "gemma"]), ["gemma4", "gemma3"]);
        assert!(found(&["embedding"]).contains(&"bge-m3"));
        assert!(found(&["nothing-like-it"]).is_empty());
    }

    #[test]
    fn slips_lead_to_a_model() {
        assert_eq!(meant("qwn3:8b"), Some("qwen3"));
        assert_eq!(meant("lama3.1"), Some("llama3.1"));
        assert_eq!(meant("qwen3:9b"), None);
        assert_eq!(meant("a-model-of-ours"), None);
    }

    #[test]
    fn experts_that_rest_cost_no_time() {
        let (dense, sparse) = (dense("32b", 20_000), sparse("30b", 19_000, 11));
        assert!(dense.memory() > 20_000_000_000);
        let ratio = sparse.tokens_per_second(1e10) / dense.tokens_per_second(1e10);
        assert!((9.0..10.0).contains(&ratio), "{ratio}");
    }
}
