//! The models there are and those that run.

use std::time::SystemTime;

use axum::{
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use llmsrv_api::{
    native::{ListedModel, Models, Running, RunningModel},
    request,
};
use llmsrv_engine::PlacedBytes;
use llmsrv_store::{Error as StoreError, ModelEntry, ModelName};
use serde_json::json;

use crate::{
    app::App,
    clock,
    dialect::{
        native::Named,
        openai::answer::{OpenAiModel, OpenAiModels},
    },
    error::ApiError,
    guard::{BODY_BYTES, read},
    model_info::{self, details},
    prompt, respond,
    tasks::blocking,
};

pub(super) async fn tags(State(app): State<App>) -> Result<Response, ApiError> {
    let (store, capabilities) = (app.store.clone(), app.capabilities.clone());
    let settings = app.settings.clone();
    let list = move || {
        let listed = store.list()?;
        let model = |entry: &ModelEntry| ListedModel {
            name: entry.name.to_string(),
            model: entry.name.to_string(),
            modified_at: clock::rfc3339(entry.modified),
            size: entry.size,
            digest: entry.digest.hex(),
            details: details(entry),
            capabilities: capabilities.of(&store, entry, &settings),
        };
        let models: Vec<ListedModel> = listed.iter().map(model).collect();
        capabilities.keep_only(&listed);
        Ok::<_, StoreError>((listed, models))
    };
    let (listed, models) = blocking(list).await??;
    let elsewhere = elsewhere(&app, &listed).map(|name| model_info::listed_upstream(&name));
    let models: Vec<ListedModel> = models.into_iter().chain(elsewhere).collect();
    Ok(respond::json(&Models { models }))
}

/// The models in the form of the OpenAI API.
pub(super) async fn openai_list(State(app): State<App>) -> Result<Response, ApiError> {
    let store = app.store.clone();
    let listed = blocking(move || store.list()).await??;
    let data = listed
        .iter()
        .map(|entry| openai_entry(&entry.name.to_string(), &entry.name, entry.modified))
        .chain(
            elsewhere(&app, &listed)
                .map(|name| openai_entry(&name.to_string(), &name, SystemTime::UNIX_EPOCH)),
        )
        .collect();
    Ok(respond::json(&OpenAiModels {
        object: "list",
        data,
    }))
}

/// The models that only other servers have.
fn elsewhere<'a>(app: &App, listed: &'a [ModelEntry]) -> impl Iterator<Item = ModelName> + 'a {
    let here = |name: &ModelName| {
        let mut names = listed.iter().map(|entry| entry.name.full());
        names.any(|known| known.eq_ignore_ascii_case(&name.full()))
    };
    let names = app.upstreams.models().into_iter();
    names.filter(move |name| !here(name))
}

/// One model in that form; its name may hold slashes.
pub(super) async fn openai_model(
    State(app): State<App>,
    Path(sent): Path<String>,
) -> Result<Response, ApiError> {
    if let Ok(name) = sent.parse()
        && app.upstreams.known(&sent).is_some()
    {
        let entry = openai_entry(&sent, &name, SystemTime::UNIX_EPOCH);
        return Ok(respond::json(&entry));
    }
    let stored = app.manager.find(&sent).await?;
    let entry = &stored.entry;
    Ok(respond::json(&openai_entry(
        &sent,
        &entry.name,
        entry.modified,
    )))
}

fn openai_entry(id: &str, name: &ModelName, modified: SystemTime) -> OpenAiModel {
    let created = modified.duration_since(SystemTime::UNIX_EPOCH);
    OpenAiModel {
        id: id.to_owned(),
        object: "model",
        created: created.map_or(0, |since| since.as_secs()),
        owned_by: name.namespace().to_owned(),
    }
}

pub(super) async fn ps(State(app): State<App>) -> Response {
    let models: Vec<RunningModel> = app
        .manager
        .running()
        .into_iter()
        .map(|running| {
            let entry = &running.stored.entry;
            let on_host = PlacedBytes::host(entry.size);
            let (bytes, context) = running.loaded.as_ref().map_or((on_host, 0), |loaded| {
                let spec = loaded.engine.spec();
                let stats = loaded.engine.stats();
                let kv = spec.kv_blocks(stats.kv_blocks_total);
                let kv = kv.plus(&spec.states(stats.states_total));
                let context = match running.last_context {
                    0 => prompt::own_context(&running.stored.parameters, loaded, &app.settings),
                    last => last,
                };
                (spec.weights().plus(&kv), context)
            });
            let size = bytes.total();
            let spec = running.loaded.as_ref().map(|loaded| loaded.engine.spec());
            let (gpu_layers, layers) =
                spec.map_or((0, 0), |spec| (spec.n_gpu_layers(), spec.n_layers));
            RunningModel {
                name: entry.name.to_string(),
                model: entry.name.to_string(),
                size,
                digest: entry.digest.hex(),
                details: details(entry),
                expires_at: clock::after(running.remaining),
                // The table of which rows are looked up stays in the memory of the machine; it is no layer.
                size_vram: if gpu_layers > 0 && gpu_layers == layers {
                    size
                } else {
                    size.saturating_sub(bytes.host)
                },
                gpu_layers,
                layers,
                on_cpu: running
                    .loaded
                    .as_ref()
                    .and_then(|loaded| loaded.on_cpu.clone()),
                npu: spec.is_some_and(|spec| spec.npu),
                context_length: context as u64,
            }
        })
        .collect();
    let queue = app.manager.n_waiting() as u64;
    respond::json(&Running { models, queue })
}

request! {
    pub(super) struct ShowRequest with named: Named {
        /// Long lists of metadata, too.
        verbose: Option<bool>,
        /// In place of the model's system text.
        system: Option<String>,
    }

    pub(super) struct CopyRequest {
        source: String,
        destination: String,
    }

    pub(super) struct ModelRequest with named: Named {
    }
}

pub(super) async fn show(
    State(app): State<App>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let body = read(body, BODY_BYTES).await?;
    let (request, _share) = body.parse(Ok::<ShowRequest, _>).await?;
    let sent = request.named.required()?;
    let name: ModelName = sent.parse().map_err(|_| ApiError::invalid_model_name())?;
    let verbose = request.verbose.unwrap_or(false);
    let system = request.system.filter(|text| !text.is_empty());
    if app.upstreams.known(&sent).is_some() {
        return Ok(respond::json(&model_info::upstream(&name)));
    }
    let (store, settings) = (app.store.clone(), app.settings.clone());
    let shown = blocking(move || {
        let stored = store.model(&name).map_err(|error| match error {
            StoreError::NotFound { .. } => ApiError::model_not_found(&name.to_string()),
            error => error.into(),
        })?;
        model_info::show(&stored, verbose, system.as_deref(), &settings)
    });
    let mut shown = shown.await??;
    let agent = headers.get(header::USER_AGENT).map(HeaderValue::as_bytes);
    if agent.is_some_and(|agent| agent.starts_with(COPILOT)) {
        let info = &mut shown.model_info;
        info.insert("general.basename".into(), json!(sent));
    }
    Ok(respond::json(&shown))
}

/// Shows to its user, as the name of a model, what it finds among the metadata.
const COPILOT: &[u8] = b"GitHubCopilotChat/";

pub(super) async fn copy(State(app): State<App>, body: Body) -> Result<StatusCode, ApiError> {
    let body = read(body, BODY_BYTES).await?;
    let (request, _share) = body.parse(Ok::<CopyRequest, _>).await?;
    let name = |member: &str, sent: &str| -> Result<ModelName, ApiError> {
        let invalid = |_| ApiError::bad_request(format!("{member} {sent:?} is invalid"));
        sent.parse().map_err(invalid)
    };
    let sent = request.source;
    let source = name("source", &sent)?;
    let destination = name("destination", &request.destination)?;
    let store = app.store.clone();
    blocking(move || store.copy(&source, &destination))
        .await?
        .map_err(|error| match error {
            StoreError::NotFound { .. } => ApiError::not_found(format!("model {sent:?} not found")),
            error => error.into(),
        })?;
    Ok(StatusCode::OK)
}

pub(super) async fn delete(State(app): State<App>, body: Body) -> Result<StatusCode, ApiError> {
    let body = read(body, BODY_BYTES).await?;
    let (request, _share) = body.parse(Ok::<ModelRequest, _>).await?;
    let sent = request.named.required()?;
    let name: ModelName = sent
        .parse()
        .map_err(|_| ApiError::bad_request(format!("name {sent:?} is invalid")))?;
    let store = app.store.clone();
    blocking(move || store.delete(&name))
        .await?
        .map_err(|error| match error {
            StoreError::NotFound { .. } => ApiError::model_not_found(&sent),
            error => error.into(),
        })?;
    Ok(StatusCode::OK)
}
