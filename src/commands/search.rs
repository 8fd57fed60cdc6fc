//! `llmsrv search`

use llmsrv_api::catalogue::CatalogueModel;
use serde_json::json;

use crate::{
    catalogue,
    cli::SearchArgs,
    context::Context,
    failure::{Code, Failure},
    format, logging,
    machine::Machine,
    term,
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
