//! The architectures this program knows: one row each, a name in the file and how its metadata
//! becomes an [`ArchConfig`].
//!
//! A new family that is a variant of the decoder is one function and one row. Names and meaning of
//! the keys: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod arctic;
mod bitnet;
mod classic;
mod dbrx;
mod deepseek;
mod dots;
mod ernie;
mod eurobert;
mod exaone;
mod falcon_h1;
mod gemma;
mod gemma3n;
mod gemma4;
mod glm;
mod gpt_oss;
mod granite;
mod hunyuan;
mod lfm2;
mod llama;
mod llama4;
mod mamba;
mod minicpm;
mod minimax;
mod mllama;
mod modern_bert;
mod nemotron_h;
mod olmo;
mod phi;
mod qwen;
mod qwen_next;
mod small_thinker;
mod smollm;

use std::ops::RangeInclusive;

use llmsrv_engine::{LoadError, Pooling};

use crate::{
    arch::{
        Activation, ArchConfig, ExpertGroups, ExpertsConfig, ExpertsInput, FeedForwardConfig,
        Gating, LayerConfig, Mixer, NormKind, SharedExpert,
    },
    encoder,
    rope::{RopeStyle, rope},
    source::{Result, Source, invalid},
};

/// Fills the hyperparameters from the metadata of a file.
type Family = fn(&Source) -> Result<ArchConfig>;

/// `general.architecture` and the function that reads it.
const FAMILIES: [(&str, Family); 71] = [
    ("arcee", llama::arcee),
    ("arctic", arctic::arctic),
    ("bailingmoe2", dots::bailing_moe2),
    ("bitnet", bitnet::bitnet),
    ("bitnet-b1.58", bitnet::b158),
    ("chatglm", glm::chatglm),
    ("cohere2", classic::cohere2),
    ("command-r", classic::command_r),
    ("dbrx", dbrx::dbrx),
    ("deci", llama::deci),
    ("deepseek", deepseek::deepseek),
    ("deepseek2", deepseek::deepseek2),
    ("deepseek2-ocr", deepseek::ocr),
    ("deepseek32", deepseek::deepseek32),
    ("dots1", dots::dots1),
    ("ernie4_5", llama::llama),
    ("ernie4_5-moe", ernie::ernie_moe),
    ("exaone", exaone::exaone),
    ("exaone4", exaone::exaone4),
    ("falcon", classic::falcon),
    ("falcon-h1", falcon_h1::falcon_h1),
    ("gemma", gemma::gemma),
    ("gemma2", gemma::gemma2),
    ("gemma3", gemma::gemma3),
    ("gemma3n", gemma3n::gemma3n),
    ("gemma4", gemma4::gemma4),
    ("glm4", glm::glm4),
    ("glm4moe", glm::glm4moe),
    ("gpt-oss", gpt_oss::gpt_oss),
    ("gpt2", classic::gpt2),
    ("gptneox", classic::gptneox),
    ("granite", granite::granite),
    ("granitehybrid", granite::hybrid),
    ("granitemoe", granite::granite),
    ("hunyuan-dense", hunyuan::hunyuan_dense),
    ("hunyuan-moe", hunyuan::hunyuan_moe),
    ("internlm2", llama::llama),
    ("lfm2", lfm2::lfm2),
    ("lfm2moe", lfm2::lfm2),
    ("llama", llama::llama),
    ("llama4", llama4::llama4),
    ("mamba2", mamba::mamba2),
    ("minicpm", minicpm::minicpm),
    ("minimax-m2", minimax::minimax_m2),
    ("mistral3", llama::mistral3),
    ("mistral4", deepseek::deepseek2),
    ("mllama", mllama::mllama),
    ("nemotron", classic::nemotron),
    ("nemotron_h", nemotron_h::nemotron_h),
    ("nemotron_h_moe", nemotron_h::nemotron_h),
    ("olmo2", olmo::olmo2),
    ("olmoe", olmo::olmoe),
    ("phi2", classic::phi2),
    ("phi3", phi::phi3),
    ("phimoe", phi::phimoe),
    ("qwen2", qwen::qwen2),
    ("qwen2moe", qwen::qwen2moe),
    ("qwen2vl", qwen::qwen2vl),
    ("qwen3", qwen::qwen3),
    ("qwen35", qwen_next::qwen35),
    ("qwen35moe", qwen_next::qwen35),
    ("qwen3moe", qwen::qwen3),
    ("qwen3next", qwen_next::qwen3next),
    ("qwen3vl", qwen::qwen3vl),
    ("qwen3vlmoe", qwen::qwen3vl),
    ("seed_oss", llama::seed_oss),
    ("smallthinker", small_thinker::small_thinker),
    ("smollm3", smollm::smollm3),
    ("stablelm", classic::stablelm),
    ("starcoder", classic::gpt2),
    ("starcoder2", classic::starcoder2),
];

/// As [`FAMILIES`], of models whose tokens see those after them, too, and which make vectors of texts and
/// nothing else.
const BIDIRECTIONAL: [(&str, Family); 4] = [
    ("eurobert", eurobert::eurobert),
    ("gemma-embedding", gemma::embedding),
    ("llama-embed", llama::embed),
    ("modern-bert", modern_bert::modern_bert),
];

/// Architectures that are known and do not run yet, and why.
const NOT_YET: &[(&str, &str)] = &[
    ("deepseek4", "attention to compressed keys"),
    (
        "kimi-linear",
        "delta nets that forget each channel at its own pace",
    ),
];

/// Far above every published model; bounds what is computed before the tensors are checked.
const LARGEST_HEAD: usize = 1 << 14;

/// Returns the names of the known decoders, sorted.
pub fn architectures() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().map(|(name, _)| *name)
}

/// Returns the names of the known encoders, which make vectors of texts and nothing else, sorted.
pub fn encoders() -> impl Iterator<Item = &'static str> {
    let ours = BIDIRECTIONAL.iter().map(|(name, _)| *name);
    let mut all: Vec<&str> = encoder::architectures().chain(ours).collect();
    all.sort_unstable();
    all.into_iter()
}

/// Returns the architectures that are known and do not run yet, sorted, and why.
pub fn not_yet() -> impl Iterator<Item = (&'static str, &'static str)> {
    NOT_YET.iter().copied()
}

/// Says of an architecture that is known why it does not run; `None` if it does, or nobody knows it.
pub fn refusal(architecture: &str) -> Option<String> {
    let (name, why) = NOT_YET.iter().find(|(name, _)| *name == architecture)?;
    Some(format!(
        "models of architecture {name:?} do not run here yet ({why}); docs/models.md lists those that do"
    ))
}

/// Reads the hyperparameters of a file of `architecture`.
pub(crate) fn read(architecture: &str, source: &Source) -> Result<ArchConfig> {
    let mut families = FAMILIES.iter().chain(&BIDIRECTIONAL);
    let Some((_, family)) = families.find(|(name, _)| *name == architecture) else {
        if let Some(refusal) = refusal(architecture) {
            return Err(LoadError::Unsupported(refusal));
        }
        let known: Vec<&str> = architectures().chain(encoders()).collect();
        return Err(LoadError::Unsupported(format!(
            "architecture {architecture:?} (known: {})",
            known.join(", ")
        )));
    };
    let mut arch = family(source)?;
    // The same layers make vectors where a file says so.
    if !arch.bidirectional && source.flag("attention.causal") == Some(false) {
        if !arch.may_see_both_sides() {
            return Err(LoadError::Unsupported(
                "a decoder whose tokens see those after them".into(),
            ));
        }
        see_both_sides(&mut arch, source)?;
    }
    Ok(arch)
}

/// Reads what all families share and leaves the rest as in Llama.
fn base(source: &Source, style: RopeStyle) -> Result<ArchConfig> {
    base_with(source, style, &|_, _| Mixer::Attention)
}

/// As [`base`], where layers may have something else in place of attention: `mixer` is asked with the
/// index of a layer and its number of key heads.
fn base_with(
    source: &Source,
    style: RopeStyle,
    mixer: &dyn Fn(usize, usize) -> Mixer,
) -> Result<ArchConfig> {
    let n_layers = n_layers(source)?;
    let width = source.count("embedding_length")?;
    let listed = source.counts_or_none("attention.head_count", n_layers)?;
    let heads = listed.clone().unwrap_or_else(|| vec![0; n_layers]);
    let kv_heads = source.counts_or_none("attention.head_count_kv", n_layers)?;
    let kv_heads = kv_heads.unwrap_or_else(|| heads.clone());
    let mixers = kv_heads.iter().enumerate().map(|(idx, n)| mixer(idx, *n));
    let mixers: Vec<Mixer> = mixers.collect();
    for (idx, (n_heads, n_kv_heads)) in heads.iter().zip(&kv_heads).enumerate() {
        if !mixers.get(idx).is_some_and(Mixer::attends) {
            continue;
        }
        if *n_heads == 0 {
            let key = source.full("attention.head_count");
            return Err(invalid(match &listed {
                None => format!("{key} is missing"),
                Some(_) => format!("{key} is 0 in layer {idx}"),
            }));
        }
        if *n_kv_heads == 0 {
            let key = source.full("attention.head_count_kv");
            return Err(invalid(format!("{key} is 0 in layer {idx}")));
        }
        if !n_heads.is_multiple_of(*n_kv_heads) {
            let key = source.full("attention.head_count_kv");
            return Err(invalid(format!(
                "{key} is {n_kv_heads}, which does not divide {n_heads} heads"
            )));
        }
    }
    let context_length = source.count("context_length")?;
    let (mut head_dim, mut ropes) = (0, Vec::new());
    if mixers.iter().any(Mixer::attends) {
        let n_heads = heads.iter().copied().max().unwrap_or(1).max(1);
        let default = (width >= n_heads).then(|| width / n_heads);
        let of_keys = "attention.key_length";
        // Latent attention makes its values of what it stores as keys.
        let is_latent = mixers.iter().any(|mixer| matches!(mixer, Mixer::Latent(_)));
        let of_values = if is_latent {
            of_keys
        } else {
            "attention.value_length"
        };
        let keys = [of_keys, of_values];
        let Some(found) = self::head_dim(source, keys, default)? else {
            let key = source.full("attention.head_count");
            return Err(invalid(format!("{key} is {n_heads}, more than {width}")));
        };
        head_dim = found;
        ropes.push(rope(source, style, head_dim, context_length)?.build());
    }
    let feed_forward = feed_forward(source, n_layers)?;
    let layers = heads.iter().zip(&kv_heads).zip(mixers).zip(feed_forward);
    let mut n_storing = 0;
    let layers = layers
        .map(|(((n_heads, n_kv_heads), mixer), feed_forward)| {
            let stores_kv = mixer.attends();
            let kv_layer = n_storing;
            n_storing += usize::from(stores_kv);
            LayerConfig {
                mixer,
                n_heads: *n_heads,
                n_kv_heads: *n_kv_heads,
                head_dim,
                kv_layer,
                stores_kv,
                rope: stores_kv.then_some(0),
                window: None,
                chunk: None,
                whole_images: false,
                feed_forward,
                gate_cutoff: None,
            }
        })
        .collect();
    Ok(ArchConfig {
        context_length,
        width,
        bidirectional: false,
        pooling: encoder::pooling(source)?,
        classifier: None,
        norm: NormKind::Rms,
        norm_eps: source
            .positive("attention.layer_norm_rms_epsilon")?
            .unwrap_or(1e-6),
        parallel: false,
        output_gate: false,
        output_norm: "output_norm",
        embedding_norm: false,
        position_table: false,
        attention_norm: "attn_norm",
        pre_norm: true,
        post_norm: false,
        feed_forward_norm: "ffn_norm",
        qk_norm: None,
        value_norm: false,
        clamp: None,
        sub_norms: false,
        sinks: false,
        embedding_scale: 1.0,
        residual_scale: 1.0,
        attention_scale: 1.0 / (head_dim.max(1) as f32).sqrt(),
        attention_softcap: None,
        query_temperature: None,
        logit_scale: 1.0,
        logit_softcap: None,
        activation: Activation::Silu,
        deepstack: 0,
        per_layer_input: None,
        streams: None,
        suppressed: Vec::new(),
        n_unwritten: 0,
        ropes,
        layers,
    })
}

/// Reads the number of layers.
fn n_layers(source: &Source) -> Result<usize> {
    source.count("block_count")?;
    let (n_layers, _) = source.n_layers()?;
    // Each layer has tensors of its own, so a larger count is a lie that would cost memory.
    if n_layers > source.n_tensors() {
        let key = source.full("block_count");
        return Err(invalid(format!(
            "{key} is {n_layers}, more than the tensors of the file"
        )));
    }
    Ok(n_layers)
}

/// Reads the elements of a head, the same for keys and values; `default` where the file does not say.
fn head_dim(
    source: &Source,
    [of_keys, of_values]: [&str; 2],
    default: Option<usize>,
) -> Result<Option<usize>> {
    let head_dim = source.optional_count(of_keys)?.or(default);
    if let Some(head_dim) = head_dim.filter(|head_dim| *head_dim > LARGEST_HEAD) {
        let key = source.full(of_keys);
        return Err(invalid(format!("{key} is {head_dim}, which is too large")));
    }
    let value_dim = source.optional_count(of_values)?;
    if value_dim.is_some() && value_dim != head_dim {
        let message = "keys and values of different length".to_owned();
        return Err(LoadError::Unsupported(message));
    }
    Ok(head_dim)
}

/// Reads a required number of things of which there are few.
fn small_count(source: &Source, key: &str, bounds: RangeInclusive<usize>) -> Result<usize> {
    let count = source.count(key)?;
    if bounds.contains(&count) {
        return Ok(count);
    }
    let (key, least, most) = (source.full(key), bounds.start(), bounds.end());
    Err(invalid(format!("{key} is {count}, not {least} to {most}")))
}

/// Reads the feed-forward parts of all layers: experts if the file has some, but for the first layers, else
/// one network each.
fn feed_forward(source: &Source, n_layers: usize) -> Result<Vec<FeedForwardConfig>> {
    let Some(experts) = experts(source)? else {
        return dense(source, n_layers);
    };
    let n_dense = leading_dense(source)?;
    if n_dense > n_layers {
        let key = source.full("leading_dense_block_count");
        return Err(invalid(format!("{key} is {n_dense} of {n_layers} layers")));
    }
    let mut parts = match n_dense {
        0 => Vec::new(),
        _ => dense(source, n_layers)?,
    };
    parts.truncate(n_dense);
    parts.resize(n_layers, FeedForwardConfig::Experts(experts));
    Ok(parts)
}

/// Reads how many layers come before those with experts.
fn leading_dense(source: &Source) -> Result<usize> {
    let n_dense = source.optional_count("leading_dense_block_count")?;
    Ok(n_dense.unwrap_or(0))
}

/// Reads one network for each layer, where that has hidden elements.
fn dense(source: &Source, n_layers: usize) -> Result<Vec<FeedForwardConfig>> {
    if !source.has_key("feed_forward_length") {
        let key = source.full("feed_forward_length");
        return Err(invalid(format!("{key} is missing")));
    }
    let widths = source.counts_or_none("feed_forward_length", n_layers)?;
    let widths = widths.unwrap_or_else(|| vec![0; n_layers]);
    let dense = |width| match width {
        0 => FeedForwardConfig::None,
        _ => FeedForwardConfig::Dense {
            width,
            fused_gate_up: false,
        },
    };
    Ok(widths.into_iter().map(dense).collect())
}

/// Reads what the experts of a model have in common, if it has some.
fn experts(source: &Source) -> Result<Option<ExpertsConfig>> {
    let Some(n_experts) = source.optional_count("expert_count")? else {
        return Ok(None);
    };
    let n_used = source.count("expert_used_count")?;
    if n_used > n_experts {
        let key = source.full("expert_used_count");
        return Err(invalid(format!("{key} is {n_used} of {n_experts} experts")));
    }
    // Where the key is missing, `feed_forward_length` may be that of a dense sibling.
    let first = leading_dense(source)?;
    let width = match source.optional_count("expert_feed_forward_length")? {
        Some(width) => width,
        None => match source.n_rows(&format!("blk.{first}.ffn_up_exps.weight")) {
            Some(width) => width,
            None => source.count("feed_forward_length")?,
        },
    };
    let normalize = source.flag("norm_top_k_prob").unwrap_or(true);
    Ok(Some(ExpertsConfig {
        n_experts,
        n_used,
        width,
        gating: gating(source, Gating::Softmax)?,
        groups: groups(source, n_experts, n_used)?,
        gated: true,
        latent: None,
        reads: ExpertsInput::Usual,
        normalize: sums_to_one(source, normalize)?,
        weight_scale: source.positive("expert_weights_scale")?.unwrap_or(1.0),
        weigh_input: false,
        shared: None,
        beside: None,
    }))
}

/// Reads how the scores of experts become probabilities; `default` where the file does not say.
fn gating(source: &Source, default: Gating) -> Result<Gating> {
    let key = "expert_gating_func";
    match source.optional_count(key)? {
        None => Ok(default),
        // 3 is the softmax of the chosen scores alone: that of all scores, made to sum to one.
        Some(1 | 3) => Ok(Gating::Softmax),
        Some(2) => Ok(Gating::Sigmoid),
        Some(other) => {
            let key = source.full(key);
            Err(LoadError::Unsupported(format!("{key} is {other}")))
        }
    }
}

/// Reads whether the weights of the experts of a row are made to sum to one; `default` where the file does
/// not say.
fn sums_to_one(source: &Source, default: bool) -> Result<bool> {
    let of_chosen = source.optional_count("expert_gating_func")? == Some(3);
    Ok(of_chosen || source.flag("expert_weights_norm").unwrap_or(default))
}

/// Sets how all layers with experts choose and weigh them, where families differ in what their files leave
/// out.
fn set_gating(
    arch: &mut ArchConfig,
    source: &Source,
    default: Gating,
    normalize: bool,
) -> Result<()> {
    let gating = gating(source, default)?;
    let normalize = sums_to_one(source, normalize)?;
    set_experts(arch, |experts| {
        experts.gating = gating;
        experts.normalize = normalize;
    });
    Ok(())
}

/// Reads the groups of experts that a row chooses from before it chooses experts, if there are some.
fn groups(source: &Source, n_experts: usize, n_used: usize) -> Result<Option<ExpertGroups>> {
    let key = "expert_group_count";
    let Some(n) = source.optional_count(key)?.filter(|n| *n > 1) else {
        return Ok(None);
    };
    if !n_experts.is_multiple_of(n) {
        let key = source.full(key);
        return Err(invalid(format!(
            "{key} is {n}, which does not divide {n_experts} experts"
        )));
    }
    let key = "expert_group_used_count";
    let groups = ExpertGroups {
        n,
        n_used: source.count(key)?,
    };
    if groups.n_used > n || groups.n_used * (n_experts / n) < n_used {
        let (key, taken) = (source.full(key), groups.n_used);
        return Err(invalid(format!(
            "{key} is {taken} of {n} groups for {n_used} of {n_experts} experts"
        )));
    }
    Ok(Some(groups))
}

/// Gives all layers with experts a network that every row takes, as wide as some of them together.
fn set_shared(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    if let Some(n) = source.optional_count("expert_shared_count")? {
        set_experts(arch, |experts| {
            experts.shared = Some(SharedExpert {
                width: experts.width.saturating_mul(n),
                gated: false,
            });
        });
    }
    Ok(())
}

/// Lets tokens see those after them, too. A window of the file reaches half as far to either side.
fn see_both_sides(arch: &mut ArchConfig, source: &Source) -> Result<()> {
    if source.flag("attention.causal") == Some(true) {
        let message = "an encoder whose tokens see only what was before them".to_owned();
        return Err(LoadError::Unsupported(message));
    }
    if arch.pooling == Some(Pooling::Rank) && arch.classifier.is_none() {
        let message = format!("{} models that rank pairs", source.architecture());
        return Err(LoadError::Unsupported(message));
    }
    arch.bidirectional = true;
    for layer in &mut arch.layers {
        layer.window = layer.window.map(|window| window / 2);
    }
    Ok(())
}

/// Changes the dense networks of all layers.
fn set_fused(arch: &mut ArchConfig) {
    for layer in &mut arch.layers {
        if let FeedForwardConfig::Dense { fused_gate_up, .. } = &mut layer.feed_forward {
            *fused_gate_up = true;
        }
    }
}

/// Takes the gates from the networks of all layers.
fn set_plain(arch: &mut ArchConfig) {
    for layer in &mut arch.layers {
        if let FeedForwardConfig::Dense { width, .. } = layer.feed_forward {
            layer.feed_forward = FeedForwardConfig::Plain { width };
        }
    }
}

/// Changes the experts of all layers.
fn set_experts(arch: &mut ArchConfig, change: impl Fn(&mut ExpertsConfig)) {
    for layer in &mut arch.layers {
        if let FeedForwardConfig::Experts(experts) = &mut layer.feed_forward {
            change(experts);
        }
    }
}

/// Gives a sliding window to the layers that the file lists, or else to all but the last of every
/// `period` layers (the file may name another period).
fn set_windows(arch: &mut ArchConfig, source: &Source, window: usize, period: usize) -> Result<()> {
    let key = "attention.sliding_window_pattern";
    let listed = source.flags(key);
    if let Some(list) = &listed
        && list.len() < arch.layers.len()
    {
        let (key, n) = (source.full(key), arch.layers.len());
        return Err(invalid(format!(
            "{key} has {} entries for {n} layers",
            list.len()
        )));
    }
    let period = match listed {
        Some(_) => period,
        None => source.optional_count(key)?.unwrap_or(period),
    };
    for (idx, layer) in arch.layers.iter_mut().enumerate() {
        let slides = match &listed {
            Some(list) => list.get(idx).copied().unwrap_or(false),
            None => idx % period < period - 1,
        };
        layer.window = slides.then_some(window);
    }
    Ok(())
}
