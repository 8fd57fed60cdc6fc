//! `llmsrv search`

use jiff::Zoned;
use llmsrv_api::catalogue::CatalogueModel;
use llmsrv_registry::Registry;
use serde_json::json;

use crate::{
    catalogue::{self, refreshed::Refreshed},
    cli::SearchArgs,
    connect,
    context::Context,
    failure::Failure,
    format,
    local::{self, Prune},
    machine::{Machine, READING},
    term,
};

/// Lists the models that match, and what each would be like on this machine.
pub fn run(context: &Context, args: &SearchArgs) -> Result<(), Failure> {
    if let Some(host) = &args.refresh {
        refresh(context, args, host)?;
    }
    let refreshed = Refreshed::read().unwrap_or_else(|error| {
        term::warning(format_args!("{error:#}; `--refresh` makes the list anew"));
        Refreshed::default()
    });
    let mut found = Machine::measure(context.threads()).list(&args.words, &refreshed);
    if found.models.is_empty() {
        let words = args.words.join(" ");
        let failure = Failure::failed(format_args!("no model in the list matches {words}"));
        return Err(failure.hint(match catalogue::meant(&words) {
            Some(meant) => format!("did you mean {meant}?"),
            None => {
                "`--refresh` asks the hub; `llmsrv pull` takes names that are not in the list, too"
                    .to_owned()
            }
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
    let marks = !args.words.is_empty();
    let rows = found.models.iter().map(|model| row(model, marks));
    let rows: Vec<Vec<String>> = rows.collect();
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
    let date = match &found.refreshed {
        Some(day) => format!("{}, refreshed on {day}", found.date),
        None => found.date.to_owned(),
    };
    let best = if marks {
        " * is the best of a model for this machine."
    } else {
        ""
    };
    term::note(format_args!(
        "`llmsrv run MODEL` pulls one and chats with it.{best} The list is of {date}.{more}"
    ));
    Ok(())
}

/// Asks a hub or registry what it has, and keeps that for later searches.
fn refresh(context: &Context, args: &SearchArgs, host: &str) -> Result<(), Failure> {
    let config = context.config();
    // What the list has is kept even if it cannot be read: it is made anew then.
    let mut list = Refreshed::read().unwrap_or_default();
    let store = local::open_store(&config.server, Prune::No)?;
    let registry = Registry::new(local::registry(&config.server)?, store.into());
    let spinner = (!context.global.quiet).then(|| term::Spinner::start("asking what there is"));
    let report = |done: usize, all: usize| {
        if let Some(spinner) = &spinner {
            spinner.say(format!("{host}: {done} of {all} models"));
        }
    };
    let offers = connect::runtime()?.block_on(registry.offers(host, &args.words, false, &report));
    drop(spinner);
    let offers = offers.map_err(Failure::failed)?;
    if offers.is_empty() {
        let text = format!("{host} offers no model of that name");
        return Err(Failure::failed(text));
    }
    list.add(Zoned::now().date().to_string(), offers);
    list.write()?;
    Ok(())
}

/// Writes a row; `marks` says that not all of them are the best of their model.
fn row(model: &CatalogueModel, marks: bool) -> Vec<String> {
    let here = match (model.why_not, model.fits, model.tokens_per_second) {
        (Some(why), ..) => format!("does not run yet: {why}"),
        (None, false, _) => format!("needs {} of memory", format::size(model.memory_bytes)),
        (None, true, Some(speed)) if speed < READING => format!("slow, about {}", tokens(speed)),
        (None, true, Some(speed)) => format!("about {}", tokens(speed)),
        (None, true, None) => "fits".to_owned(),
    };
    let mark = if marks && model.suggested { " *" } else { "" };
    vec![
        format!("{}{mark}", model.name),
        format::size(model.bytes),
        here,
        std::iter::once(&model.about)
            .chain(&model.capabilities)
            .cloned()
            .collect::<Vec<_>>()
            .join(", "),
        model.licence.clone().unwrap_or_default(),
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
