//! What a run found, for people, documents and programs.

use llmsrv_bench::{Figure, GpuReport, Limits, ModelReport, Report};

use crate::{cli::BenchArgs, failure::Failure, format, term};

/// Prints the report in the form asked for.
pub fn report(report: &Report, args: &BenchArgs) -> Result<(), Failure> {
    if args.json {
        term::json(&serde_json::to_value(report)?)?;
        return Ok(());
    }
    let mut parts = vec![match &report.gpu {
        Some(gpu) => gpu_limits(&report.limits, gpu),
        None => limits(&report.limits, report.threads),
    }];
    for model in &report.models {
        parts.push(heading(model, args.markdown));
        for (header, rows) in [speeds(model), kernels(model)] {
            if rows.is_empty() {
                continue;
            }
            parts.push(if args.markdown {
                markdown(&header, &rows)
            } else {
                let header: Vec<&str> = header.iter().map(String::as_str).collect();
                term::table(&header, &rows)
            });
        }
        let facts = facts(model);
        let bullet = if args.markdown { "* " } else { "" };
        let facts: Vec<String> = facts.iter().map(|fact| format!("{bullet}{fact}")).collect();
        if !facts.is_empty() {
            parts.push(facts.join("\n"));
        }
    }
    term::line(parts.join("\n\n"))?;
    Ok(())
}

fn gpu_limits(limits: &Limits, gpu: &GpuReport) -> String {
    let dot = match &gpu.int8_dot {
        Some(figure) => format!("int8 dot {} Gop/s", range(figure, 1e-9)),
        None => "no int8 dot".to_owned(),
    };
    format!(
        "Limits of {} ({}, {}, Vulkan {}, driver {}): memory read {} GB/s, {} {} GFLOP/s, {dot}, a kernel after \
         another {} us; arithmetic {}",
        gpu.name,
        gpu.kind,
        format::size(gpu.memory_bytes),
        gpu.api_version,
        gpu.driver,
        range(&limits.read, 1e-9),
        limits.float_instruction,
        range(&limits.float, 1e-9),
        range(&gpu.kernel, 1e6),
        gpu.arithmetic,
    )
}

fn limits(limits: &Limits, threads: usize) -> String {
    let giga = |figure: &Figure| {
        format!(
            "{:.0} [{:.0}-{:.0}]",
            figure.median / 1e9,
            figure.min / 1e9,
            figure.max / 1e9
        )
    };
    format!(
        "Limits of {threads} threads: memory read {} GB/s, {} {} Gop/s, {} {} GFLOP/s",
        giga(&limits.read),
        limits.int8_instruction,
        giga(&limits.int8),
        limits.float_instruction,
        giga(&limits.float),
    )
}

fn heading(model: &ModelReport, is_markdown: bool) -> String {
    let text = format!(
        "{} ({}, {:.1} M weights, {})",
        model.model,
        model.architecture,
        model.n_weights as f64 / 1e6,
        format::size(model.weight_bytes)
    );
    if is_markdown {
        format!("### {text}")
    } else {
        text
    }
}

fn speeds(model: &ModelReport) -> (Vec<String>, Vec<Vec<String>>) {
    let mut names: Vec<&str> = Vec::new();
    for peer in model.tests.iter().flat_map(|test| &test.peers) {
        if !names.contains(&peer.name.as_str()) {
            names.push(&peer.name);
        }
    }
    let mut header: Vec<String> = ["TEST", "TOK/S", "LIMIT", "SHARE"]
        .map(str::to_owned)
        .into();
    for name in &names {
        header.push((*name).to_owned());
        header.push("RATIO".to_owned());
    }
    let row = |test: &llmsrv_bench::TestReport| {
        let mut row = vec![
            test.test.clone(),
            range(&test.speed, 1.0),
            rounded(test.limit),
            format!("{:.0} %", test.share * 100.0),
        ];
        for name in &names {
            match test.peers.iter().find(|peer| peer.name == *name) {
                Some(peer) => {
                    row.push(range(&peer.speed, 1.0));
                    row.push(format!("{:.2}x", peer.ratio));
                }
                None => row.extend(["-".to_owned(), "-".to_owned()]),
            }
        }
        row
    };
    let rows = model.tests.iter().map(row).collect();
    (header, rows)
}

/// What the kernels of a GPU took, those of one part in a hundred and less together.
fn kernels(model: &ModelReport) -> (Vec<String>, Vec<Vec<String>>) {
    const LEAST: f64 = 0.01;
    let header = ["TEST", "KERNEL", "CALLS", "US", "MB", "GB/S", "SHARE"];
    let mut rows = Vec::new();
    for test in &model.tests {
        let row = |name: &str, calls: u64, seconds: f64, bytes: u64, share: f64| {
            let rate = bytes as f64 / seconds.max(1e-9) / 1e9;
            vec![
                test.test.clone(),
                name.to_owned(),
                calls.to_string(),
                rounded(seconds * 1e6),
                rounded(bytes as f64 / 1e6),
                rounded(rate),
                format!("{:.0} %", share * 100.0),
            ]
        };
        let (long, short): (Vec<_>, Vec<_>) = test
            .kernels
            .iter()
            .partition(|kernel| kernel.share >= LEAST);
        for kernel in long {
            rows.push(row(
                kernel.kernel,
                kernel.calls,
                kernel.seconds,
                kernel.bytes,
                kernel.share,
            ));
        }
        if !short.is_empty() {
            rows.push(row(
                &format!("{} others", short.len()),
                short.iter().map(|kernel| kernel.calls).sum(),
                short.iter().map(|kernel| kernel.seconds).sum(),
                short.iter().map(|kernel| kernel.bytes).sum(),
                short.iter().map(|kernel| kernel.share).sum(),
            ));
        }
    }
    (header.map(str::to_owned).into(), rows)
}

fn facts(model: &ModelReport) -> Vec<String> {
    let mut facts = vec![format!("Load: {} s", range(&model.load, 1.0))];
    if let Some(process) = &model.process {
        facts.push(format!(
            "New process, exec to first computed token: {} ms; resident {}, {:.2}x the weights",
            range(&process.ready, 1e3),
            format::size(process.resident_bytes),
            process.resident_bytes as f64 / model.weight_bytes.max(1) as f64,
        ));
    }
    if let Some(first) = &model.first_token {
        facts.push(format!(
            "First token of a prompt of {} tokens: {} ms; of the same prompt again: {} ms",
            first.prompt,
            range(&first.new, 1e3),
            range(&first.seen, 1e3),
        ));
    }
    if let Some(stream) = &model.stream {
        facts.push(format!(
            "Streaming over HTTP: {} tok/s, {:.1} % of {} inside the process",
            range(&stream.http, 1.0),
            (1.0 - stream.lost) * 100.0,
            range(&stream.engine, 1.0),
        ));
    }
    facts.extend(model.notes.iter().cloned());
    facts
}

/// Writes the median and the range of samples, each times `factor`.
fn range(figure: &Figure, factor: f64) -> String {
    let [median, min, max] = [figure.median, figure.min, figure.max].map(|x| rounded(x * factor));
    if figure.samples.len() > 1 {
        format!("{median} [{min}-{max}]")
    } else {
        median
    }
}

/// Three digits are what a measurement is worth.
fn rounded(value: f64) -> String {
    let decimals = match value {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Lays out a table for a document.
pub fn markdown(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
    let rule: Vec<String> = header.iter().map(|_| "---".to_owned()).collect();
    let mut lines = vec![line(header), line(&rule)];
    lines.extend(rows.iter().map(|row| line(row)));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_their_range() {
        let figure = Figure::of(vec![1234.56, 12.345, 99.0]);
        assert_eq!(range(&figure, 1.0), "99.0 [12.3-1235]");
        assert_eq!(range(&Figure::of(vec![0.012_34]), 1e3), "12.3");
        let table = markdown(&["A".into(), "B".into()], &[vec!["1".into(), "2".into()]]);
        assert_eq!(table, "| A | B |\n| --- | --- |\n| 1 | 2 |");
    }
}
