//! `llmsrv search`

use serde::Serialize;
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
    let machine = Machine::measure(context);
    let matching = MODELS.iter().filter(|model| model.matches(&args.words));
    let mut found: Vec<Found> = matching.flat_map(|model| machine.sizes(model)).collect();
    if found.is_empty() {
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
    let n_found = found.len();
    if !args.all {
        found.retain(|found| found.runs && found.fits);
        if args.words.is_empty() {
            keep_best(&mut found);
        }
    }
    if args.json {
        term::json(&json!({
            "date": catalogue::DATE,
            "memory_bytes": machine.memory,
            "bytes_per_second": machine.bytes_per_second,
            "models": found,
        }))?;
        return Ok(());
    }
    let rows: Vec<Vec<String>> = found.iter().map(Found::row).collect();
    if !rows.is_empty() {
        let header = ["MODEL", "SIZE", "HERE", "FOR", "LICENCE"];
        term::line(term::table(&header, &rows))?;
    }
    let n_left = n_found - found.len();
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

/// Keeps, of each model, the largest size that keeps up with a reader, or the smallest.
fn keep_best(found: &mut Vec<Found>) {
    let mut best: Vec<Found> = Vec::new();
    for model in found.drain(..) {
        match best.iter_mut().find(|other| other.base == model.base) {
            Some(other) if other.bytes < model.bytes && model.keeps_up() => *other = model,
            Some(_) => {}
            None => best.push(model),
        }
    }
    *found = best;
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
    fn measure(context: &Context) -> Machine {
        Machine {
            memory: llmsrv_server::total_memory(),
            bytes_per_second: llmsrv_bench::bandwidth(context.threads()),
        }
    }

    fn sizes(&self, model: &'static Entry) -> impl Iterator<Item = Found> {
        let sizes = model.sizes.iter();
        sizes.map(move |size| self.found(model, size))
    }

    fn found(&self, model: &'static Entry, size: &'static Size) -> Found {
        let why_not = llmsrv_models::not_yet().find(|(name, _)| *name == model.architecture);
        let embeds = model.can.contains(&"embedding");
        Found {
            base: model.base(),
            name: model.full(size),
            bytes: size.bytes(),
            memory_bytes: size.memory(),
            runs: why_not.is_none(),
            why_not: why_not.map(|(_, why)| why),
            fits: self.memory.is_none_or(|memory| size.memory() <= memory),
            tokens_per_second: (!embeds).then(|| size.tokens_per_second(self.bytes_per_second)),
            about: model.about,
            capabilities: model.can,
            context: model.context,
            architecture: model.architecture,
            licence: model.licence,
        }
    }
}

/// One size of a model, and what it would be like here.
#[derive(Serialize)]
struct Found {
    #[serde(skip)]
    base: &'static str,
    name: String,
    bytes: u64,
    memory_bytes: u64,
    runs: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    why_not: Option<&'static str>,
    fits: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_second: Option<f64>,
    about: &'static str,
    capabilities: &'static [&'static str],
    context: u32,
    architecture: &'static str,
    licence: &'static str,
}

impl Found {
    /// Whether an answer comes as fast as it is read. Vectors are read by nobody.
    fn keeps_up(&self) -> bool {
        self.tokens_per_second.is_none_or(|rate| rate >= READING)
    }

    fn row(&self) -> Vec<String> {
        let here = match (self.why_not, self.fits, self.tokens_per_second) {
            (Some(why), ..) => format!("does not run yet: {why}"),
            (None, false, _) => format!("needs {} of memory", format::size(self.memory_bytes)),
            (None, true, Some(speed)) => format!("about {}", tokens(speed)),
            (None, true, None) => "fits".to_owned(),
        };
        vec![
            self.name.clone(),
            format::size(self.bytes),
            here,
            std::iter::once(&self.about)
                .chain(self.capabilities)
                .copied()
                .collect::<Vec<_>>()
                .join(", "),
            self.licence.to_owned(),
        ]
    }
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
