//! What `/api/show` tells about a model.

use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    time::SystemTime,
};

use llmsrv_api::{
    modelfile::{Instruction, Modelfile},
    native::{Details, ListedModel, Shown, Tensor},
};
use llmsrv_chat::{Template, TemplateCapabilities};
use llmsrv_gguf::{Array, GgufFile, Metadata, ModelFacts, Value as MetaValue};
use llmsrv_store::{ModelEntry, ModelName, Store, StoredModel};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::{clock, error::ApiError, settings::Settings, template};

/// Returns the facts that lists show. The name `default` has the model it stands for as its parent.
pub(crate) fn details(entry: &ModelEntry) -> Details {
    let config = &entry.config;
    let meant = entry.stands_for.as_ref();
    Details {
        parent_model: meant.map_or_else(String::new, ToString::to_string),
        format: config.format.clone(),
        family: config.family.clone(),
        families: config.families.clone(),
        parameter_size: config.parameter_size.clone(),
        quantization_level: config.quantization.clone(),
        context_length: config.context_length,
        embedding_length: config.embedding_length,
    }
}

/// Returns what a list shows of a model that another server has: not much is known of it.
pub(crate) fn listed_upstream(name: &ModelName) -> ListedModel {
    ListedModel {
        name: name.to_string(),
        model: name.to_string(),
        modified_at: clock::rfc3339(SystemTime::UNIX_EPOCH),
        size: 0,
        digest: "0".repeat(64),
        details: upstream_details(),
        capabilities: UPSTREAM_CAPABILITIES.map(str::to_owned).to_vec(),
    }
}

/// Returns what is known of a model that another server has.
pub(crate) fn upstream(name: &ModelName) -> Shown {
    Shown {
        modelfile: format!("FROM {name}\n"),
        details: upstream_details(),
        model_info: Map::from_iter([
            ("general.architecture".into(), json!(UPSTREAM)),
            ("general.basename".into(), json!(name.model())),
        ]),
        capabilities: UPSTREAM_CAPABILITIES.map(str::to_owned).to_vec(),
        modified_at: clock::rfc3339(SystemTime::UNIX_EPOCH),
        ..Shown::default()
    }
}

fn upstream_details() -> Details {
    Details {
        format: UPSTREAM.into(),
        family: UPSTREAM.into(),
        families: vec![UPSTREAM.into()],
        parameter_size: "unknown".into(),
        quantization_level: "unknown".into(),
        ..Details::default()
    }
}

const UPSTREAM: &str = "upstream";
const UPSTREAM_CAPABILITIES: [&str; 2] = ["completion", "tools"];

/// What models can do, for lists: their files are read once, and no template is parsed.
#[derive(Default)]
pub(crate) struct Capabilities(Mutex<HashMap<String, Vec<String>>>);

impl Capabilities {
    /// Returns what a model can do; nothing of one whose files cannot be read, which are looked at again
    /// the next time.
    pub(crate) fn of(&self, store: &Store, entry: &ModelEntry, settings: &Settings) -> Vec<String> {
        let digest = entry.digest.hex();
        let known = || self.0.lock();
        if let Some(found) = known().get(&digest) {
            return found.clone();
        }
        let Ok(stored) = store.model(&entry.name) else {
            return Vec::new();
        };
        let found = capabilities(&stored, template::capabilities(&stored, settings));
        // Of a header that cannot be read nothing is known, not even what the model is.
        if *stored.facts != ModelFacts::default() {
            known().insert(digest, found.clone());
        }
        found
    }

    /// Forgets models that are not listed any more.
    pub(crate) fn keep_only(&self, listed: &[ModelEntry]) {
        let digests: HashSet<String> = listed.iter().map(|entry| entry.digest.hex()).collect();
        let mut known = self.0.lock();
        known.retain(|digest, _| digests.contains(digest));
    }
}

fn capabilities(stored: &StoredModel, can: TemplateCapabilities) -> Vec<String> {
    let embeds_only = stored.entry.config.embeds_only;
    // Beside the weights, or in the same file.
    let sees = !stored.projectors.is_empty() || stored.facts.sees;
    let all = [
        (embeds_only, "embedding"),
        (!embeds_only, "completion"),
        (!embeds_only && can.tools, "tools"),
        (!embeds_only && can.insert, "insert"),
        (sees, "vision"),
        (!embeds_only && can.thinking, "thinking"),
    ];
    all.into_iter()
        .filter(|(has, _)| *has)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// Returns everything; `system` stands in for the model's own system text. Reads the model file.
pub(crate) fn show(
    stored: &StoredModel,
    verbose: bool,
    system: Option<&str>,
    settings: &Settings,
) -> Result<Shown, ApiError> {
    let file = GgufFile::open(&stored.weights).map_err(|error| match error {
        // The system's text may hold a path.
        llmsrv_gguf::Error::Io(error) => ApiError::internal(format!(
            "cannot read model '{}': {}",
            stored.entry.name,
            error.kind()
        )),
        error => ApiError::internal(format!("invalid model file: {error}")),
    })?;
    let template = template::choose(stored, settings)?;
    let config = &stored.entry.config;
    let capabilities = capabilities(stored, template.capabilities());

    let system = system.or(stored.system.as_deref()).unwrap_or_default();
    let projector = stored.projectors.first();
    let projector = projector.map(|path| GgufFile::open(path)).transpose()?;
    let info = |file: &GgufFile| {
        let count = file.header().parameter_count();
        model_info(file.metadata(), count, verbose)
    };
    let tensors = file.header().tensors.iter().map(|tensor| Tensor {
        name: tensor.name.clone(),
        r#type: tensor.dtype.name().into(),
        shape: tensor.shape.clone(),
    });
    let given = |text: String| (!text.is_empty()).then_some(text);
    Ok(Shown {
        license: (!stored.license.is_empty()).then(|| stored.license.join("\n")),
        modelfile: modelfile(stored, &template, system),
        parameters: given(parameters(&stored.parameters)),
        template: template.source().into(),
        system: given(system.to_owned()),
        details: details(&stored.entry),
        messages: (!stored.messages.is_empty()).then(|| stored.messages.clone()),
        model_info: info(&file),
        projector_info: projector.as_ref().map(info),
        tensors: Some(tensors.collect()),
        capabilities,
        modified_at: clock::rfc3339(stored.entry.modified),
        requires: config.requires.clone(),
        renderer: config.renderer.clone(),
        parser: config.parser.clone(),
    })
}

/// One option a line, its name in 30 columns; lists repeat the name.
fn parameters(parameters: &Map<String, Value>) -> String {
    let mut text = String::new();
    for (name, value) in parameters {
        for value in values(value) {
            // A text is shown in quotes, as JSON does it.
            let _ = writeln!(text, "{name:<30} {value}");
        }
    }
    text.truncate(text.trim_end().len());
    text
}

fn values(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(values) => values.iter().collect(),
        value => vec![value],
    }
}

/// A Modelfile that would make this model again.
fn modelfile(stored: &StoredModel, template: &Template, system: &str) -> String {
    let name = stored.entry.name.to_string();
    let mut text = format!(
        "# Modelfile generated by \"llmsrv show\"\n# To build a new Modelfile based on this, replace FROM with:\n\
         # FROM {name}\n\n"
    );
    let mut instructions = vec![Instruction::From(name)];
    // A template of the weights comes with them, and so does a layer that it goes before: written here it
    // would be one of the user's own, which nothing goes before.
    let layer = stored.template.clone();
    let layer = layer.filter(|_| matches!(template, Template::Go(_)));
    instructions.extend(layer.map(Instruction::Template));
    if !system.is_empty() {
        instructions.push(Instruction::System(system.to_owned()));
    }
    for (name, given) in &stored.parameters {
        let parameter = |value: &Value| Instruction::Parameter {
            name: name.clone(),
            value: value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned),
        };
        instructions.extend(values(given).into_iter().map(parameter));
    }
    instructions.extend(stored.license.iter().cloned().map(Instruction::License));
    for message in &stored.messages {
        let text = |member: &str| message[member].as_str().unwrap_or_default().to_owned();
        instructions.push(Instruction::Message {
            role: text("role"),
            content: text("content"),
        });
    }
    for instruction in instructions {
        let name = instruction.name().to_uppercase();
        let one = Modelfile {
            instructions: vec![instruction],
        };
        let line = one.print().and_then(|line| {
            // Models of other programs have options and roles that no Modelfile can have.
            Modelfile::parse(format!("FROM x\n{line}").as_bytes()).map(|_| line)
        });
        match line {
            Ok(line) => text += &line,
            Err(error) => {
                let _ = writeln!(text, "# {name}: {error}");
            }
        }
    }
    text
}

/// The keys of the model file. Long arrays are left empty unless everything is asked for.
fn model_info(metadata: &Metadata, parameter_count: u64, verbose: bool) -> Map<String, Value> {
    let mut info = Map::new();
    for (key, value) in metadata.iter() {
        if !matches!(key, "general.name" | "tokenizer.chat_template") {
            info.insert(key.to_owned(), meta_value(value, verbose));
        }
    }
    info.insert("general.parameter_count".into(), json!(parameter_count));
    info
}

fn meta_value(value: &MetaValue, verbose: bool) -> Value {
    match value {
        MetaValue::F32(value) => json!(value),
        MetaValue::F64(value) => json!(value),
        MetaValue::Bool(value) => json!(value),
        MetaValue::String(value) => json!(value),
        MetaValue::Array(array) if array.len() > SHOWN_ELEMENTS && !verbose => json!([]),
        MetaValue::Array(array) => meta_array(array),
        value => match value.integer() {
            Some(value) => {
                u64::try_from(value).map_or_else(|_| json!(value as i64), |value| json!(value))
            }
            None => Value::Null,
        },
    }
}

fn meta_array(array: &Array) -> Value {
    match array {
        Array::U8(values) => json!(values),
        Array::I8(values) => json!(values),
        Array::U16(values) => json!(values),
        Array::I16(values) => json!(values),
        Array::U32(values) => json!(values),
        Array::I32(values) => json!(values),
        Array::F32(values) => json!(values),
        Array::Bool(values) => json!(values),
        Array::Strings(values) => values.iter().map(String::from_utf8_lossy).collect(),
        Array::Nested(values) => values.iter().map(meta_array).collect(),
        Array::U64(values) => json!(values),
        Array::I64(values) => json!(values),
        Array::F64(values) => json!(values),
    }
}

const SHOWN_ELEMENTS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_stand_in_columns() {
        let given = json!({"temperature": 0.2, "stop": ["<a>", "b\"c"]});
        let expected = format!(
            "{:<30} 0.2\n{:<30} \"<a>\"\n{:<30} \"b\\\"c\"",
            "temperature", "stop", "stop"
        );
        assert_eq!(parameters(given.as_object().unwrap()), expected);
    }
}
