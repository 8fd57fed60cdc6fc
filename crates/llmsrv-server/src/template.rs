//! The chat template of a model: which one it is, and whether it can be used.

use llmsrv_chat::{Error, Template, TemplateCapabilities};
use llmsrv_gguf::ModelFacts;
use llmsrv_store::{Layer, LayerKind, Manifest, Store, StoredModel};

use crate::{error::ApiError, settings::Settings};

/// Chooses the template of a model. One that does not parse is reported, and another one used: the layer
/// where that of the weights was to go before it, else a plain one.
///
/// # Errors
///
/// One that is beyond the bounds of what is parsed is an error.
pub(crate) fn choose(stored: &StoredModel, settings: &Settings) -> Result<Template, ApiError> {
    let preferred = preferred(stored, settings);
    let parsed = parse(preferred, &stored.facts).or_else(|error| match layer(stored) {
        Some(layer) if preferred.is_none() => {
            let model = &stored.entry.name;
            tracing::warn!(%model, %error, "the template of the model's file is not used");
            parse(Some(layer), &stored.facts)
        }
        _ => Err(error),
    });
    match parsed {
        Ok(template) => Ok(template),
        Err(error @ Error::Limit(_)) => Err(ApiError::internal(unusable(
            &stored.entry.name.to_string(),
            &error,
        ))),
        Err(error) => {
            tracing::warn!(model = %stored.entry.name, %error, "the model's template is not used");
            Ok(Template::builtin(&|_| stored.facts.knows_chatml)?)
        }
    }
}

/// What the template of a model can express, told by its text alone.
pub(crate) fn capabilities(stored: &StoredModel, settings: &Settings) -> TemplateCapabilities {
    let facts = &stored.facts;
    let layer = preferred(stored, settings);
    Template::capabilities_of(layer, facts.template.as_deref(), &|_| facts.knows_chatml)
}

/// The `TEMPLATE` layer of a model, unless the template of its weights goes before it: by the settings, or
/// where it does more, if nobody here wrote the layer, and nothing but it is known of how prompts are made.
fn preferred<'a>(stored: &'a StoredModel, settings: &Settings) -> Option<&'a str> {
    let layer = layer(stored)?;
    let jinja = stored.facts.template.as_deref().unwrap_or_default();
    if jinja.trim().is_empty() {
        return Some(layer);
    }
    let config = &stored.entry.config;
    let is_passed_over = match settings.config.go_template {
        Some(go_first) => !go_first,
        None => {
            !config.own_template
                && config.renderer.is_none()
                && config.parser.is_none()
                && Template::jinja_does_more(layer, jinja)
        }
    };
    (!is_passed_over).then_some(layer)
}

/// The `TEMPLATE` layer of a model, if it says anything.
fn layer(stored: &StoredModel) -> Option<&str> {
    let renders = stored.entry.config.renderer.is_some();
    filled(stored.template.as_deref(), renders)
}

/// Where a renderer is named it makes the prompts, and a bare layer only fills its place: the file says
/// what the renderer does.
fn filled(layer: Option<&str>, renders: bool) -> Option<&str> {
    let is_bare = |text: &str| text.split_whitespace().collect::<String>() == "{{.Prompt}}";
    layer.filter(|text| !(renders && is_bare(text)))
}

/// A `TEMPLATE` layer.
pub(crate) enum Source<'a> {
    /// One that is not stored yet.
    Text(&'a [u8]),
    Blob(&'a Layer),
}

/// Refuses a model that is being made and whose template cannot be used.
pub(crate) fn check_made(
    store: &Store,
    layer: Option<Source<'_>>,
    renders: bool,
    weights: Option<&Layer>,
) -> Result<(), ApiError> {
    check(store, layer, renders, weights)?.map_err(|error| {
        ApiError::bad_request(format!(
            "the template of the model cannot be used: {error}; give another one with TEMPLATE"
        ))
    })
}

/// Refuses a model that comes in and whose template is beyond the bounds of what is parsed. One that
/// does not parse is no harm: without it the model can still be used.
pub(crate) fn check_pulled(store: &Store, manifest: &Manifest) -> Result<(), String> {
    let layer = manifest.layers_of(LayerKind::Template).last();
    let weights = manifest.layers_of(LayerKind::Model).next();
    // Whether it names a renderer is not looked up: then the file is looked at behind a bare layer, too.
    match check(store, layer.map(Source::Blob), true, weights) {
        Ok(Err(error @ Error::Limit(_))) => {
            Err(format!("the template of the model cannot be used: {error}"))
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses the template that a model of these layers would use.
fn check(
    store: &Store,
    layer: Option<Source<'_>>,
    renders: bool,
    weights: Option<&Layer>,
) -> Result<Result<(), Error>, ApiError> {
    let layer = match layer {
        Some(Source::Blob(layer)) if layer.size > MAX_LAYER_BYTES => {
            return Ok(Err(Error::Limit("1 MiB of text")));
        }
        Some(Source::Blob(layer)) => {
            let bytes = std::fs::read(store.blob_path(&layer.digest)).map_err(|error| {
                ApiError::internal(format!("cannot read the template: {}", error.kind()))
            })?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        }
        Some(Source::Text(text)) => Some(String::from_utf8_lossy(text).into_owned()),
        None => None,
    };
    let facts = weights.map(|layer| store.facts(&store.blob_path(&layer.digest)));
    let layer = filled(layer.as_deref(), renders);
    Ok(parse(layer, &facts.unwrap_or_default()).map(drop))
}

fn parse(layer: Option<&str>, facts: &ModelFacts) -> Result<Template, Error> {
    let (jinja, has_token) = (facts.template.as_deref(), |_: &str| facts.knows_chatml);
    Template::choose(layer, jinja, &has_token, &facts.bos, &facts.eos)
}

fn unusable(name: &str, error: &Error) -> String {
    format!(
        "the template of model '{name}' cannot be used: {error}; make a model from it that has a TEMPLATE of its own"
    )
}

/// Longer ones are refused whatever they say.
const MAX_LAYER_BYTES: u64 = 1 << 20;
