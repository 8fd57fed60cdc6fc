//! The tokenizer of a published model to the `tokenizer.*` keys of a model file.

mod definition;
mod sentencepiece;

use llmsrv_gguf::{Array, Metadata, StringArray, Value as Meta};
use serde_json::{Map, Value};

use crate::{Error, config::Config, files::Files};

/// Tokens and the way text becomes them.
#[derive(Debug, Default)]
struct Vocabulary {
    /// `tokenizer.ggml.model`.
    model: &'static str,
    /// `tokenizer.ggml.pre`.
    pre: &'static str,
    tokens: Vec<Token>,
    merges: Vec<String>,
    /// A space is put in front of every text.
    add_space_prefix: Option<bool>,
    /// Text loses its capitals.
    lowercase: Option<bool>,
    /// Text loses its accents.
    strip_accents: Option<bool>,
}

#[derive(Clone, Debug)]
struct Token {
    text: Vec<u8>,
    score: f32,
    kind: Kind,
}

/// The numbers of `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

/// Sets the keys of the tokenizer of a model that has `n_tokens` embeddings.
pub(crate) fn convert(
    files: &Files<'_>,
    config: &Config,
    n_tokens: u64,
    metadata: &mut Metadata,
) -> Result<(), Error> {
    let settings = files.json("tokenizer_config.json")?.unwrap_or_default();
    let definition = files.json("tokenizer.json")?;
    let mut vocabulary = match (files.bytes("tokenizer.model")?, &definition) {
        // Some repositories have a file of this name that is of another format.
        (Some(bytes), Some(definition)) => match sentencepiece::read(&bytes) {
            Ok(vocabulary) => vocabulary,
            Err(_) => definition::read(definition)?,
        },
        (Some(bytes), None) => sentencepiece::read(&bytes)?,
        (None, Some(definition)) => definition::read(definition)?,
        (None, None) => return Err(Error::MissingFile("tokenizer.model or tokenizer.json")),
    };
    let n_tokens = usize::try_from(n_tokens)
        .map_err(|_| Error::Invalid("the token embedding is too large".into()))?;
    vocabulary.fill(n_tokens);
    for added in added(files, &settings, definition.as_ref())? {
        vocabulary.add(added);
    }
    if let Some(Value::Bool(prefix)) = settings.get("add_prefix_space")
        && vocabulary.model == "llama"
    {
        vocabulary.add_space_prefix = Some(*prefix);
    }
    vocabulary.write(metadata);
    roles(&vocabulary, files, config, &settings, metadata)?;
    if vocabulary.model == "bert" {
        if let Some(n_types) = config.count(&["type_vocab_size"])? {
            metadata.set("tokenizer.ggml.token_type_count", n_types);
        }
    } else {
        framing(&vocabulary, &settings, definition.as_ref(), metadata);
    }
    templates(files, &settings, metadata)
}

impl Vocabulary {
    /// Makes as many tokens as there are embeddings.
    fn fill(&mut self, n_tokens: usize) {
        self.tokens.truncate(n_tokens);
        for id in self.tokens.len()..n_tokens {
            self.tokens.push(Token::unused(id));
        }
    }

    fn add(&mut self, added: Added) {
        let Some(token) = self.tokens.get_mut(added.id) else {
            return; // A token without an embedding can never occur.
        };
        token.kind = if added.is_special || looks_special(&added.text) {
            Kind::Control
        } else {
            Kind::UserDefined
        };
        // Spaces of text are compared as they are.
        token.text = match token.kind {
            Kind::UserDefined if self.model == "llama" => added.text.replace('\u{2581}', " "),
            _ => added.text,
        }
        .into_bytes();
        token.score = ADDED_SCORE;
    }

    fn write(&self, metadata: &mut Metadata) {
        metadata.set("tokenizer.ggml.model", self.model);
        metadata.set("tokenizer.ggml.pre", self.pre);
        let texts: StringArray = self.tokens.iter().map(|token| &token.text).collect();
        metadata.set("tokenizer.ggml.tokens", texts);
        if self.model == "llama" {
            let scores: Vec<f32> = self.tokens.iter().map(|token| token.score).collect();
            metadata.set("tokenizer.ggml.scores", scores);
        }
        let kinds: Vec<i32> = self.tokens.iter().map(|token| token.kind as i32).collect();
        metadata.set("tokenizer.ggml.token_type", kinds);
        if !self.merges.is_empty() {
            metadata.set("tokenizer.ggml.merges", self.merges.clone());
        }
        for (key, flag) in [
            ("add_space_prefix", self.add_space_prefix),
            ("normalizer.lowercase", self.lowercase),
            ("normalizer.strip_accents", self.strip_accents),
        ] {
            if let Some(flag) = flag {
                metadata.set(format!("tokenizer.ggml.{key}"), flag);
            }
        }
    }

    fn id(&self, text: &str) -> Option<u32> {
        let found = self
            .tokens
            .iter()
            .position(|token| token.text == text.as_bytes());
        found.map(|id| id as u32)
    }
}

impl Token {
    /// A token that stands for an embedding without one.
    fn unused(id: usize) -> Token {
        Token {
            text: format!("[PAD{id}]").into_bytes(),
            score: UNUSED_SCORE,
            kind: Kind::Unused,
        }
    }
}

/// A token that is found as a whole before text is cut.
struct Added {
    id: usize,
    text: String,
    is_special: bool,
}

/// Collects the added tokens from the three places that have held them.
fn added(
    files: &Files<'_>,
    settings: &Map<String, Value>,
    definition: Option<&Map<String, Value>>,
) -> Result<Vec<Added>, Error> {
    let mut found = Vec::new();
    let mut push = |id: Option<usize>, text: Option<&str>, is_special| {
        if let (Some(id), Some(text)) = (id, text) {
            let text = text.to_owned();
            found.push(Added {
                id,
                text,
                is_special,
            });
        }
    };
    let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
    for (text, id) in files.json("added_tokens.json")?.unwrap_or_default() {
        push(number(&id), Some(&text), false);
    }
    let content = |token: &Value| {
        token
            .get("content")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let is_special = |token: &Value| token.get("special").and_then(Value::as_bool) == Some(true);
    if let Some(Value::Object(tokens)) = settings.get("added_tokens_decoder") {
        for (id, token) in tokens {
            push(
                id.parse().ok(),
                content(token).as_deref(),
                is_special(token),
            );
        }
    }
    let listed = definition.and_then(|definition| definition.get("added_tokens")?.as_array());
    for token in listed.into_iter().flatten() {
        let id = token.get("id").and_then(number);
        push(id, content(token).as_deref(), is_special(token));
    }
    Ok(found)
}

/// Some models do not mark tokens as special that never stand for text.
fn looks_special(text: &str) -> bool {
    let between = |start, end| text.starts_with(start) && text.ends_with(end);
    ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].contains(&text)
        || between("<|", "|>")
        || between("<｜", "｜>")
        || between("<unused", ">")
}

/// Sets the ids of tokens with a role.
fn roles(
    vocabulary: &Vocabulary,
    files: &Files<'_>,
    config: &Config,
    settings: &Map<String, Value>,
    metadata: &mut Metadata,
) -> Result<(), Error> {
    let n_tokens = vocabulary.tokens.len() as u64;
    let generation = files.json("generation_config.json")?.unwrap_or_default();
    for (role, key, in_bert) in ROLES {
        let spelling = settings.get(&format!("{role}_token")).and_then(|token| {
            token
                .as_str()
                .or_else(|| token.get("content").and_then(Value::as_str))
        });
        let by_number = || {
            let value = config.get(&format!("{role}_token_id"))?;
            let id = value.as_u64().or_else(|| value.get(0)?.as_u64())?;
            (id < n_tokens).then_some(id as u32)
        };
        let usual = || {
            let is_bert = vocabulary.model == "bert";
            is_bert.then(|| vocabulary.id(in_bert)).flatten()
        };
        if let Some(id) = spelling
            .and_then(|text| vocabulary.id(text))
            .or_else(by_number)
            .or_else(usual)
        {
            metadata.set(format!("tokenizer.ggml.{key}_token_id"), id);
        }
    }
    // A chat may end with others than the end of a text.
    let listed = generation
        .get("eos_token_id")
        .or(config.get("eos_token_id"));
    if let Some(Value::Array(ids)) = listed {
        let ids: Vec<u32> = ids
            .iter()
            .filter_map(Value::as_u64)
            .filter(|id| *id < n_tokens)
            .map(|id| id as u32)
            .collect();
        metadata.set("tokenizer.ggml.eos_token_ids", Meta::Array(Array::U32(ids)));
    }
    Ok(())
}

/// Sets which tokens are put around every text.
fn framing(
    vocabulary: &Vocabulary,
    settings: &Map<String, Value>,
    definition: Option<&Map<String, Value>>,
    metadata: &mut Metadata,
) {
    let template = definition.and_then(|definition| template(definition.get("post_processor")?));
    let token = |piece: Option<&Value>| {
        let id = piece?.get("SpecialToken")?.get("id")?.as_str()?;
        vocabulary.id(id)
    };
    let (first, last) = match &template {
        Some(pieces) if pieces.len() > 1 => (token(pieces.first()), token(pieces.last())),
        _ => (None, None),
    };
    // What the definition puts in front is what the model was trained with.
    if let Some(first) = first {
        metadata.set("tokenizer.ggml.bos_token_id", first);
    }
    // Texts of models that make vectors may end with another token than chats: that one is then put at the end, and
    // the other still ends what is generated.
    let eos = metadata.u32("tokenizer.ggml.eos_token_id");
    if let Some(last) = last
        && eos != Some(last)
        && settings.get("add_eos_token") != Some(&Value::Bool(false))
    {
        metadata.set("tokenizer.ggml.eos_token_id", last);
        if let Some(eos) = eos
            && metadata.u32("tokenizer.ggml.eot_token_id").is_none()
        {
            metadata.set("tokenizer.ggml.eot_token_id", eos);
        }
    }
    let is_known = template.is_some() || vocabulary.model == "gpt2";
    for (role, found) in [("bos", first), ("eos", last)] {
        let id = metadata.u32(&format!("tokenizer.ggml.{role}_token_id"));
        let stated = settings
            .get(&format!("add_{role}_token"))
            .and_then(Value::as_bool);
        let derived = is_known.then_some(found.is_some() && found == id);
        if let Some(adds) = stated.or(derived) {
            let adds = adds && id.is_some();
            metadata.set(format!("tokenizer.ggml.add_{role}_token"), adds);
        }
    }
}

/// The pieces of a single text in a post-processor.
fn template(processor: &Value) -> Option<&Vec<Value>> {
    match processor.get("type")?.as_str()? {
        "TemplateProcessing" => processor.get("single")?.as_array(),
        "Sequence" => processor
            .get("processors")?
            .as_array()?
            .iter()
            .find_map(template),
        _ => None,
    }
}

/// Copies the chat templates.
fn templates(
    files: &Files<'_>,
    settings: &Map<String, Value>,
    metadata: &mut Metadata,
) -> Result<(), Error> {
    if let Some(template) = files.text("chat_template.jinja")? {
        metadata.set("tokenizer.chat_template", template);
        return Ok(());
    }
    let alone = files.json("chat_template.json")?;
    let alone = alone
        .as_ref()
        .and_then(|object| object.get("chat_template"));
    match settings.get("chat_template").or(alone) {
        Some(Value::String(template)) => metadata.set("tokenizer.chat_template", template.as_str()),
        Some(Value::Array(templates)) => {
            let mut others = Vec::new();
            for entry in templates {
                let text = |key| entry.get(key).and_then(Value::as_str);
                match (text("name"), text("template")) {
                    (Some("default"), Some(template)) => {
                        metadata.set("tokenizer.chat_template", template);
                    }
                    (Some(name), Some(template)) => {
                        metadata.set(format!("tokenizer.chat_template.{name}"), template);
                        others.push(name);
                    }
                    _ => {}
                }
            }
            if !others.is_empty() {
                metadata.set("tokenizer.chat_templates", others);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Roles in `tokenizer_config.json` and in a model file, which has one of them misspelt, and what a BERT spells them where
/// nothing is said.
const ROLES: &[(&str, &str, &str)] = &[
    ("bos", "bos", "[CLS]"),
    ("eos", "eos", "[SEP]"),
    ("unk", "unknown", "[UNK]"),
    ("sep", "seperator", "[SEP]"),
    ("pad", "padding", "[PAD]"),
    ("cls", "cls", "[CLS]"),
    ("mask", "mask", "[MASK]"),
];

/// Scores of tokens that text never becomes by merging.
const ADDED_SCORE: f32 = -1000.0;
const UNUSED_SCORE: f32 = -10_000.0;
