//! Pulls, pushes and other long work of the server as commands run it: a request, and its steps
//! shown as they come.

use llmsrv_api::{
    client::{self, Client},
    progress::Progress,
};
use llmsrv_store::ModelName;
use serde_json::Value;

use crate::{
    catalogue,
    context::Context,
    failure::Failure,
    known,
    term::{self, Steps},
};

/// Says how the steps of long work are shown.
pub fn shown(context: &Context, as_json: bool) -> Steps {
    if as_json {
        Steps::json()
    } else if context.global.quiet {
        Steps::hidden()
    } else {
        Steps::for_people()
    }
}

/// Sends a request whose answer is a stream of steps, and shows them.
pub async fn run(
    client: &Client,
    path: &str,
    request: &Value,
    shown: &mut Steps,
) -> Result<(), Failure> {
    let model = request["model"].as_str();
    let failed = |error| failed(model, error);
    let mut lines = client
        .stream::<Progress>(path, request)
        .await
        .map_err(failed)?;
    let mut is_done = false;
    while let Some(line) = lines.next().await {
        let step = line.map_err(|error| {
            shown.stop();
            failed(error)
        })?;
        shown.step(&step)?;
        is_done = step.is_success();
    }
    shown.stop();
    if is_done {
        return Ok(());
    }
    Err(Failure::failed("the server ended before it was done"))
}

/// Says what went wrong, and which model was probably meant: whoever is offline learns of a slip, too.
fn failed(model: Option<&str>, error: client::Error) -> Failure {
    let is_unknown = error.to_string().ends_with("file does not exist");
    let near = model
        .and_then(catalogue::meant)
        .map(|meant| format!("did you mean {meant}? `llmsrv search {meant}` lists its sizes"));
    let failure = Failure::from(error);
    match (is_unknown, near) {
        (true, Some(near)) => failure.hint(format!("{NOT_THERE}; {near}")),
        (true, None) => failure.hint(NOT_THERE),
        (false, Some(near)) if failure.hint.is_none() => failure.hint(near),
        (false, _) => failure,
    }
}

const NOT_THERE: &str = "the registry has no model of this name and tag";

/// Pulls a model that is asked for and not there; `request` is what `/api/pull` takes.
pub async fn pull_missing(
    context: &Context,
    client: &Client,
    request: &Value,
) -> Result<(), Failure> {
    let model = request["model"].as_str().unwrap_or_default();
    // This name stands for another model or for none; no registry has it.
    let default = "default".parse::<ModelName>().ok();
    if model.parse().ok() == default {
        return Ok(());
    }
    let show = serde_json::json!({ "model": model });
    let found: Result<Value, client::Error> = client.post("/api/show", &show).await;
    match found {
        Err(client::Error::Status { status: 404, .. }) => {}
        // Other mistakes show where the model is used.
        _ => return Ok(()),
    }
    let mut names = known::names(client).await.unwrap_or_default();
    // It is the first name that anybody types.
    names.push("default".to_owned());
    if let Some(meant) = known::meant(model, &names) {
        let text = format!("there is no model {model}; did you mean {meant}?");
        return Err(
            Failure::failed(text).hint(format!("`llmsrv pull {model}` gets a model of this name"))
        );
    }
    if !context.global.quiet {
        term::note(format_args!("{model} is not here: pulling it"));
    }
    let pulled = run(client, "/api/pull", request, &mut shown(context, false)).await;
    pulled.map_err(|failure| {
        failure.context(format!("model '{model}' is not here and cannot be pulled"))
    })
}
