//! `llmsrv ps`

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cli::PsArgs,
    connect::{running, runtime},
    context::Context,
    failure::Failure,
    format,
    known::keep_named,
    term,
};

/// Prints the models in the memory of the running server.
pub fn run(context: &Context, args: &PsArgs) -> Result<(), Failure> {
    let mut loaded: Value = runtime()?.block_on(async {
        let client = running(context).await?;
        Ok::<_, Failure>(client.get("/api/ps").await?)
    })?;
    keep_named(&mut loaded, args.prefix.as_deref().unwrap_or_default());
    if args.json {
        term::json(&loaded)?;
        return Ok(());
    }
    let loaded: Loaded = serde_json::from_value(loaded)?;
    let now = Timestamp::now();
    let rows: Vec<Vec<String>> = loaded
        .models
        .iter()
        .map(|model| {
            vec![
                model.name.clone(),
                model.digest.chars().take(12).collect(),
                format::size(model.size),
                processor(model.npu, model.size, model.size_vram),
                model.context_length.to_string(),
                model
                    .expires_at
                    .parse()
                    .map_or_else(|_| "-".to_owned(), |at| format::until(at, now)),
            ]
        })
        .collect();
    term::line(term::table(
        &["NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL"],
        &rows,
    ))?;
    for model in loaded.models {
        if let Some(why) = model.on_cpu {
            let part = if model.size_vram == 0 { "" } else { "in part " };
            term::note(format!(
                "{} is {part}computed on the CPU: {why}",
                model.name
            ));
        }
    }
    Ok(())
}

/// What is printed of the answer; a server of another kind may leave fields out.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Loaded {
    models: Vec<Model>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Model {
    name: String,
    digest: String,
    size: u64,
    size_vram: u64,
    on_cpu: Option<String>,
    npu: bool,
    context_length: u64,
    expires_at: String,
}

/// Says what computes a model, or which part of it is in the memory of a GPU.
pub(super) fn processor(npu: bool, size: u64, size_vram: u64) -> String {
    match (size, size_vram) {
        _ if npu => "100% NPU".to_owned(),
        (_, 0) => "100% CPU".to_owned(),
        (size, vram) if vram >= size => "100% GPU".to_owned(),
        (size, vram) => {
            let cpu = ((size - vram) as f64 / size as f64 * 100.0).round();
            format!("{cpu:.0}%/{:.0}% CPU/GPU", 100.0 - cpu)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (size, vram, text) in [
            (100, 0, "100% CPU"),
            (100, 100, "100% GPU"),
            (100, 150, "100% GPU"),
            (300, 100, "67%/33% CPU/GPU"),
            (0, 0, "100% CPU"),
        ] {
            assert_eq!(processor(false, size, vram), text);
        }
    }
}
