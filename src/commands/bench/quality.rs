//! How well models predict a text, and how far they are from another model.

use std::{path::Path, sync::Arc};

use llmsrv_bench::{Error, Estimate, Quality, TextOptions};
use llmsrv_engine::{LoadOptions, Loader};
use serde::Serialize;

use super::{Subject, print, subjects};
use crate::{about::VERSION, cli::BenchArgs, context::Context, failure::Failure, term, text};

/// What was measured of all models.
#[derive(Serialize)]
struct Report {
    version: &'static str,
    /// How the CPU multiplied: it has a part in all figures.
    arithmetic: String,
    reference: Option<String>,
    models: Vec<ModelReport>,
}

#[derive(Serialize)]
struct ModelReport {
    model: String,
    /// Bytes of the file.
    bytes: u64,
    #[serde(flatten)]
    quality: Quality,
}

/// Measures models over the text of a file.
pub fn run(
    context: &Context,
    args: &BenchArgs,
    file: &Path,
    load: LoadOptions,
) -> Result<(), Failure> {
    let text = text::read(file)?;
    let subjects_of = |typed: &[String]| subjects(context, typed);
    let models = subjects_of(&args.what)?;
    let reference = match &args.kl {
        Some(name) => subjects_of(std::slice::from_ref(name))?.pop(),
        None => None,
    };
    let options = TextOptions {
        window: args.window,
        most_windows: args.chunks,
        load,
    };
    let loader: Loader = Arc::new(llmsrv_models::load);
    let mut steps = super::steps(context.global.quiet);
    let mut report = Report {
        version: VERSION,
        arithmetic: context.config().server.cpu_arithmetic.clone(),
        reference: reference.as_ref().map(|subject| subject.name.clone()),
        models: Vec::new(),
    };
    for Subject { name, weights, .. } in &models {
        let status = format!("{name}: reading the text");
        let mut progress = |done: usize, total: usize| {
            let bytes = text.len() as u64;
            steps.amount(&status, bytes * done as u64 / total.max(1) as u64, bytes);
        };
        let reference = reference.as_ref().map(|subject| subject.weights.as_path());
        let quality =
            llmsrv_bench::measure(weights, reference, &text, &loader, &options, &mut progress)
                .map_err(with_hint)
                .map_err(|failure| failure.context(format!("cannot measure {name}")))?;
        report.models.push(ModelReport {
            model: name.clone(),
            bytes: weights.metadata()?.len(),
            quality,
        });
    }
    steps.stop();
    show(&report, args)
}

/// Says what can be done about a text that is not measured.
pub fn with_hint(error: Error) -> Failure {
    let text = error.to_string();
    let failure = Failure::from(anyhow::Error::new(error));
    if text.contains("fewer than a window") {
        failure.hint("give a longer text, or a smaller --window")
    } else if text.contains("the vocabularies differ") {
        failure.hint("the reference must be the same model in another type")
    } else {
        failure
    }
}

fn show(report: &Report, args: &BenchArgs) -> Result<(), Failure> {
    if args.json {
        term::json(&serde_json::to_value(report)?)?;
        return Ok(());
    }
    let mut header = vec!["MODEL", "SIZE", "PERPLEXITY"];
    if report.reference.is_some() {
        header.extend(["RATIO", "KL", "MEDIAN", "99 %", "SAME TOP"]);
    }
    let rows: Vec<Vec<String>> = report.models.iter().map(row).collect();
    let table = if args.markdown {
        let header: Vec<String> = header.iter().map(|cell| (*cell).to_owned()).collect();
        print::markdown(&header, &rows)
    } else {
        term::table(&header, &rows)
    };
    let mut parts = vec![table];
    if let Some(ModelReport { quality, .. }) = report.models.first() {
        parts.push(format!(
            "{} tokens scored, in {} windows of {}",
            quality.scored, quality.windows, quality.window
        ));
        if let (Some(name), Some(divergence)) = (&report.reference, &quality.divergence) {
            parts.push(format!(
                "The reference {name} has a perplexity of {}",
                estimate(divergence.reference_perplexity, 4)
            ));
        }
    }
    term::line(parts.join("\n\n"))?;
    Ok(())
}

fn row(report: &ModelReport) -> Vec<String> {
    let mut row = vec![
        report.model.clone(),
        crate::format::size(report.bytes),
        estimate(report.quality.perplexity, 4),
    ];
    if let Some(divergence) = &report.quality.divergence {
        let same = divergence.same_top;
        row.extend([
            estimate(divergence.perplexity_ratio, 4),
            estimate(divergence.mean, 5),
            format!("{:.5}", divergence.median),
            format!("{:.4}", divergence.p99),
            format!("{:.2} ± {:.2} %", same.value * 100.0, same.error * 100.0),
        ]);
    }
    row
}

fn estimate(of: Estimate, decimals: usize) -> String {
    format!("{:.decimals$} ± {:.decimals$}", of.value, of.error)
}
