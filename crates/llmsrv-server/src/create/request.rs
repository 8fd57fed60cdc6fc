//! What a client wants made, right in itself.

use llmsrv_api::{
    lenient::{BodyError, Fields},
    modelfile::Modelfile,
    options::Options,
};
use llmsrv_chat::Template;
use llmsrv_convert::Target;
use llmsrv_store::{Digest, ModelName};
use serde_json::{Map, Value, json};

use crate::{
    dialect::native::model_name,
    error::{ApiError, refuse},
};

/// A request of `/api/create`.
#[derive(Debug)]
pub(crate) struct CreateRequest {
    pub(super) name: ModelName,
    pub(super) from: Option<ModelName>,
    pub(super) files: Vec<(String, Digest)>,
    pub(super) adapters: Vec<(String, Digest)>,
    pub(super) quantize: Option<Target>,
    /// The blob of an importance matrix to quantise with.
    pub(super) imatrix: Option<Digest>,
    pub(super) template: Option<String>,
    pub(super) system: Option<String>,
    pub(super) license: Vec<String>,
    pub(super) parameters: Map<String, Value>,
    pub(super) messages: Vec<Value>,
    pub(super) requires: Option<String>,
    pub(super) renderer: Option<String>,
    pub(super) parser: Option<String>,
}

impl CreateRequest {
    /// Parses a request and tells whether progress is wanted.
    pub(crate) fn parse(mut fields: Fields) -> Result<(CreateRequest, bool), ApiError> {
        let name = model_name(&mut fields)?.ok_or_else(ApiError::model_required)?;
        let name = parse_name(&name)?;
        let stream = fields.bool("stream")?.unwrap_or(true);
        if let Some(text) = filled(&mut fields, "modelfile")? {
            add_modelfile(&mut fields, &text)?;
        }
        let from = filled(&mut fields, "from")?;
        let from = from.map(|from| parse_name(&from)).transpose()?;
        let given = fields.object("files")?;
        if from.is_none() && given.is_none() {
            let text = "neither 'from' or 'files' was specified";
            return Err(ApiError::bad_request(text));
        }
        let files = blobs(given.unwrap_or_default())?;
        if from.is_none() && files.is_empty() {
            refuse!("no files provided to convert");
        }
        let adapters = blobs(fields.object("adapters")?.unwrap_or_default())?;
        let old_name = filled(&mut fields, "quantization")?;
        let quantize = filled(&mut fields, "quantize")?.or(old_name);
        let template = filled(&mut fields, "template")?;
        if let Some(template) = &template {
            Template::go(template)?;
        }
        let parameters = fields.object("parameters")?.unwrap_or_default();
        let ignored = Options::default().merge(&parameters)?;
        if !ignored.is_empty() {
            tracing::warn!(options = ?ignored, "options without effect");
        }
        let order = CreateRequest {
            name,
            from,
            files,
            adapters,
            quantize: quantize.map(|text| text.parse::<Target>()).transpose()?,
            imatrix: filled(&mut fields, "imatrix")?
                .map(|digest| digest.parse())
                .transpose()?,
            template,
            system: filled(&mut fields, "system")?,
            license: licenses(fields.take("license"))?,
            parameters,
            messages: messages(&mut fields)?,
            requires: filled(&mut fields, "requires")?,
            renderer: filled(&mut fields, "renderer")?,
            parser: filled(&mut fields, "parser")?,
        };
        Ok((order, stream))
    }
}

/// Takes a text that is not empty.
fn filled(fields: &mut Fields, name: &str) -> Result<Option<String>, BodyError> {
    Ok(fields.text(name)?.filter(|text| !text.is_empty()))
}

fn parse_name(text: &str) -> Result<ModelName, ApiError> {
    text.parse().map_err(|_| ApiError::invalid_model_name())
}

/// Reads names and digests of uploaded files.
fn blobs(files: Map<String, Value>) -> Result<Vec<(String, Digest)>, ApiError> {
    let files = files.into_iter().map(|(name, digest)| {
        if !is_relative(&name) {
            refuse!("file path must be relative");
        }
        let digest: Digest = digest.as_str().unwrap_or_default().parse()?;
        Ok((name, digest))
    });
    files.collect()
}

/// Tells whether a path stays where it begins. The names are never used as paths, but what looks
/// like an attempt to leave is refused.
fn is_relative(path: &str) -> bool {
    let mut parts = path.split(['/', '\\']);
    parts.all(|part| !matches!(part, "" | "." | "..")) && !path.contains(['\0', ':'])
}

fn licenses(value: Option<Value>) -> Result<Vec<String>, ApiError> {
    let text = |value| match value {
        Value::String(text) => Ok(text),
        _ => Err(ApiError::from(BodyError::Type {
            member: "license".into(),
            expected: "a string or a list of strings",
        })),
    };
    let mut texts = match value {
        None => Vec::new(),
        Some(Value::Array(values)) => values.into_iter().map(text).collect::<Result<_, _>>()?,
        Some(value) => vec![text(value)?],
    };
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}

/// Checks messages; they are stored as they were sent, roles in lower case.
fn messages(fields: &mut Fields) -> Result<Vec<Value>, ApiError> {
    let mut messages = fields.list("messages")?.unwrap_or_default();
    for message in &mut messages {
        let role = message["role"].as_str().unwrap_or_default().to_lowercase();
        if !ROLES.contains(&role.as_str())
            || !matches!(message["content"], Value::String(_) | Value::Null)
        {
            refuse!(
                "messages must be objects with a role (\"system\", \"user\", \"assistant\" or \"tool\") and a content"
            );
        }
        message["role"] = json!(role);
    }
    Ok(messages)
}

/// Puts what a Modelfile says under what the request itself says. Clients of older servers send
/// the text, the files in it replaced by `@` and their digests.
fn add_modelfile(fields: &mut Fields, text: &str) -> Result<(), ApiError> {
    let modelfile = Modelfile::parse(text.as_bytes())
        .map_err(|error| ApiError::bad_request(error.to_string()))?;
    for (name, value) in modelfile.request() {
        fields.put_default(&name, value);
    }
    let mut files = Map::new();
    for from in modelfile.from() {
        match from.strip_prefix('@') {
            Some(digest) => {
                files.insert(format!("model-{}.gguf", files.len()), json!(digest));
            }
            None => fields.put_default("from", json!(from)),
        }
    }
    let adapters = modelfile.adapters().enumerate().map(|(at, adapter)| {
        let digest = adapter.strip_prefix('@').unwrap_or_default();
        (format!("adapter-{at}.gguf"), json!(digest))
    });
    let adapters: Map<String, Value> = adapters.collect();
    for (name, blobs) in [("files", files), ("adapters", adapters)] {
        if !blobs.is_empty() {
            fields.put_default(name, blobs.into());
        }
    }
    Ok(())
}

const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];
