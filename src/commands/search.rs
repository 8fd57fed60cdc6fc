//! `llmsrv search`

use std::{collections::BTreeMap, sync::OnceLock};

use llmsrv_api::catalogue::{Catalogue, CatalogueModel};
use llmsrv_server::CatalogueSource;
use serde_json::json;

use crate::{
    catalogue::{self, Entry, MODELS, Size},
    cli::SearchArgs,
    context::Context,
    failure::{Code, Failure},
    format, logging, term,
};

/// Lists the models that match, and what each would be like on this machine.
pub fn run(context: &Context, args: &SearchArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    let mut found = Machine::measure(context.threads()).list(&args.words);
    if found.models.is_empty() {
        let words = args.words.join(" ");
        let failure = Failure::new(
            Code::Failed,
            format_args!("no model in the list matches {words}"),
        );
        return Err(failure.hint(match catalogue::meant(&words) {
            Some(meant) => format!("did you mean {meant}?"),
            None => "`llmsrv pull` takes names that are not in the list, too".to_owned(),
        }));
    }
    let n_found = found.models.len();
    if !args.all {
        let is_wanted = |model: &CatalogueModel| {
            if args.words.is_empty() {
                model.suggested
            } else {
                model.runs && model.fits
            }
        };
        found.models.retain(is_wanted);
    }
    if args.json {
        term::json(&json!(found))?;
        return Ok(());
    }
    let rows: Vec<Vec<String>> = found.models.iter().map(row).collect();
    if !rows.is_empty() {
        let header = ["MODEL", "SIZE", "HERE", "FOR", "LICENCE"];
        term::line(term::table(&header, &rows))?;
    }
    let n_left = n_found - found.models.len();
    let more = match n_left {
        0 => String::new(),
        1 => " One more is listed with --all.".to_owned(),
        n => format!(" {n} more are listed with --all."),
    };
    term::note(format_args!(
        "`llmsrv run MODEL` pulls one and chats with it. The list is of {}.{more}",
        catalogue::DATE
    ));
    Ok(())
}

/// The whole list for a server; the machine is measured when it is asked for the first time.
pub fn source(n_threads: usize) -> CatalogueSource {
    let machine = OnceLock::new();
    CatalogueSource::new(move || {
        machine
            .get_or_init(|| Machine::measure(n_threads))
            .list(&[])
    })
}

/// Tokens in a second that a person reads.
const READING: f64 = 5.0;

/// What decides whether a model fits, and how fast it is.
struct Machine {
    /// Bytes of memory that a process can have.
    memory: Option<u64>,
    /// What memory gives to all threads.
    bytes_per_second: f64,
}

impl Machine {
    fn measure(n_threads: usize) -> Machine {
        Machine {
            memory: llmsrv_server::total_memory(),
            bytes_per_second: llmsrv_bench::bandwidth(n_threads),
        }
    }

    /// The models that all words are said of.
    fn list(&self, words: &[String]) -> Catalogue {
        let matching = MODELS.iter().filter(|model| model.matches(words));
        let mut models: Vec<CatalogueModel> = matching
            .flat_map(|model| model.sizes.iter().map(|size| self.model(model, size)))
            .collect();
        suggest(&mut models);
        Catalogue {
            date: catalogue::DATE,
            memory_bytes: self.memory,
            bytes_per_second: self.bytes_per_second,
            models,
        }
    }

    fn model(&self, model: &'static Entry, size: &'static Size) -> CatalogueModel {
        let why_not = llmsrv_models::not_yet().find(|(name, _)| *name == model.architecture);
        let embeds = model.can.contains(&"embedding");
        CatalogueModel {
            name: model.full(size),
            bytes: size.bytes(),
            memory_bytes: size.memory(),
            runs: why_not.is_none(),
            why_not: why_not.map(|(_, why)| why),
            fits: self.memory.is_none_or(|memory| size.memory() <= memory),
            suggested: false,
            tokens_per_second: (!embeds).then(|| size.tokens_per_second(self.bytes_per_second)),
            about: model.about,
            capabilities: model.can,
            context: model.context,
            architecture: model.architecture,
            licence: model.licence,
        }
    }
}

/// Suggests, of each model, the largest size that keeps up with a reader, or the smallest.
fn suggest(models: &mut [CatalogueModel]) {
    let mut best: BTreeMap<&str, usize> = BTreeMap::new();
    for (idx, model) in models.iter().enumerate() {
        if !(model.runs && model.fits) {
            continue;
        }
        // An answer comes as fast as it is read. Vectors are read by nobody.
        let keeps_up = model.tokens_per_second.is_none_or(|rate| rate >= READING);
        let base = model.name.split(':').next().unwrap_or(&model.name);
        let held = best.entry(base).or_insert(idx);
        if keeps_up && models[*held].bytes < model.bytes {
            *held = idx;
        }
    }
    let best: Vec<usize> = best.into_values().collect();
    for idx in best {
        models[idx].suggested = true;
    }
}

fn row(model: &CatalogueModel) -> Vec<String> {
    let here = match (model.why_not, model.fits, model.tokens_per_second) {
        (Some(why), ..) => format!("does not run yet: {why}"),
        (None, false, _) => format!("needs {} of memory", format::size(model.memory_bytes)),
        (None, true, Some(speed)) => format!("about {}", tokens(speed)),
        (None, true, None) => "fits".to_owned(),
    };
    vec![
        model.name.clone(),
        format::size(model.bytes),
        here,
        std::iter::once(&model.about)
            .chain(model.capabilities)
            .copied()
            .collect::<Vec<_>>()
            .join(", "),
        model.licence.to_owned(),
    ]
}

/// Writes a rate with two digits: an estimate has no more.
fn tokens(per_second: f64) -> String {
    if per_second >= 100.0 {
        format!("{:.0} tok/s", (per_second / 10.0).round() * 10.0)
    } else if per_second >= 10.0 {
        format!("{per_second:.0} tok/s")
    } else {
        format!("{per_second:.1} tok/s")
    }
}
