//! `logkit prune`: old entries go.

use logkit::{DbSink, Durability, Timestamp, query::Filter};

use crate::{args::PruneArgs, failure::Failure, render, settings::Database, time};

/// Does `prune`.
pub(crate) fn run(args: &PruneArgs) -> Result<(), Failure> {
    let database = Database::find(&args.database)?;
    let reader = database.reader()?;
    let before = args
        .older_than
        .map(|age| Timestamp::from_micros(time::Moment::Ago(age).unix_micros()));
    let all = reader.count(&Filter::default())?;
    if args.dry_run {
        let old = match before {
            None => 0,
            Some(before) => reader.count(&Filter {
                until: Some(before),
                ..Filter::default()
            })?,
        };
        // The old ones are nearly always those with the smallest ids, which `--keep` takes too.
        let surplus = args.keep.map_or(0, |keep| all.saturating_sub(keep));
        render::line(format_args!(
            "{} of {all} entries would be deleted from {}",
            old.max(surplus),
            database.path.display()
        ))?;
        return Ok(());
    }
    drop(reader);
    let mut sink = DbSink::open(&database.path, &database.table, Durability::Buffered)?;
    let n_deleted = sink.prune(before, args.keep)?;
    if args.vacuum {
        sink.vacuum()?;
    }
    render::line(format_args!(
        "{n_deleted} of {all} entries deleted from {}",
        database.path.display()
    ))?;
    Ok(())
}
