//! What a client wants made, right in itself.

use llmsrv_api::{
    lenient::{BodyError, Fields},
    members::Member,
    modelfile::Modelfile,
    native::Message,
    options::{Options, Stop},
    request,
};
use llmsrv_chat::Template;
use llmsrv_convert::Target;
use llmsrv_store::{Digest, ModelName};
use serde_json::{Map, Value, json};

use crate::{
    dialect::native::Named,
    error::{ApiError, refuse},
};

request! {
    pub(crate) struct CreateRequest with named: Named {
        // Before the others, which it may give.
        #[schema(ignore)] modelfile: Underlay,
        /// Name of the model it is made from.
        from: Option<String>,
        /// Digests of files that were sent before, by their names.
        #[schema(value_type = Option<Object>)] files: Option<Map<String, Value>>,
        /// Digests of a LoRA adapter's files, by their names.
        #[schema(value_type = Option<Object>)] adapters: Map<String, Value>,
        template: Option<String>,
        system: Option<String>,
        /// Its licenses.
        license: Option<Stop>,
        /// Options for every request.
        #[schema(value_type = Option<Object>)] parameters: Map<String, Value>,
        /// Messages that go before those of a request.
        #[schema(value_type = Option<Vec<Message>>)] messages: Vec<Value>,
        /// Type of the new weights, such as `Q4_K_M`.
        quantize: Option<String>,
        #[schema(ignore)] quantization: Option<String>,
        /// Digest of an importance matrix that was sent before, to quantize with.
        imatrix: Option<String>,
        #[schema(ignore)] draft_files: Map<String, Value>,
        requires: Option<String>,
        renderer: Option<String>,
        parser: Option<String>,
        stream: Option<bool>,
    }
}

/// What a request of `/api/create` comes to.
#[derive(Debug)]
pub(crate) struct Order {
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

impl Order {
    /// Checks a request. Tells also whether progress is wanted.
    pub(crate) fn of(request: CreateRequest) -> Result<(Order, bool), ApiError> {
        let name = parse_name(&request.named.required()?)?;
        let from = filled(request.from);
        let from = from.map(|from| parse_name(&from)).transpose()?;
        if from.is_none() && request.files.is_none() {
            refuse!("neither 'from' or 'files' was specified");
        }
        let files = blobs(request.files.unwrap_or_default())?;
        if from.is_none() && files.is_empty() {
            refuse!("no files provided to convert");
        }
        let quantize = filled(request.quantize).or(filled(request.quantization));
        let template = filled(request.template);
        if let Some(template) = &template {
            Template::go(template)?;
        }
        let ignored = Options::default().merge(&request.parameters)?;
        if !ignored.is_empty() {
            tracing::warn!(options = ?ignored, "options without effect");
        }
        if !request.draft_files.is_empty() {
            tracing::warn!(model = %name, "DRAFT has no effect: LLMSRV_DRAFT_MODEL names draft models");
        }
        let order = Order {
            name,
            from,
            files,
            adapters: blobs(request.adapters)?,
            quantize: quantize.map(|text| text.parse::<Target>()).transpose()?,
            imatrix: filled(request.imatrix)
                .map(|digest| digest.parse())
                .transpose()?,
            template,
            system: filled(request.system),
            license: licenses(request.license),
            parameters: request.parameters,
            messages: messages(request.messages)?,
            requires: filled(request.requires),
            renderer: filled(request.renderer),
            parser: filled(request.parser),
        };
        Ok((order, request.stream.unwrap_or(true)))
    }
}

/// Returns a text that is not empty.
fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
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

fn licenses(given: Option<Stop>) -> Vec<String> {
    let mut texts = match given {
        None => Vec::new(),
        Some(Stop::One(text)) => vec![text],
        Some(Stop::Several(texts)) => texts,
    };
    texts.retain(|text| !text.is_empty());
    texts
}

/// Checks messages; they are stored as they were sent, roles in lower case.
fn messages(mut messages: Vec<Value>) -> Result<Vec<Value>, ApiError> {
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

/// A Modelfile: puts what it says under what the request itself says. Clients of older servers send
/// the text, the files in it replaced by `@` and their digests.
struct Underlay;

impl Member for Underlay {
    fn take(fields: &mut Fields, name: &str) -> Result<Underlay, BodyError> {
        let text: String = fields.get(name)?;
        if !text.is_empty() {
            let modelfile = Modelfile::parse(text.as_bytes());
            put_under(
                fields,
                &modelfile.map_err(|error| BodyError::Meaning(error.to_string()))?,
            );
        }
        Ok(Underlay)
    }
}

fn put_under(fields: &mut Fields, modelfile: &Modelfile) {
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
    let drafts = modelfile
        .drafts()
        .map(|draft| (draft.to_owned(), Value::Null));
    fields.put_default("draft_files", drafts.collect::<Map<_, _>>().into());
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
}

const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];
