//! `logkit export`: entries into other databases and files, oldest first.

use logkit::{Sink, spec};

use crate::{
    args::ExportArgs,
    failure::Failure,
    filter::filter,
    render, run,
    settings::{Database, Settings},
};

/// Entries written at once.
const BATCH: usize = 1000;

/// Does `export`.
pub(crate) fn run(args: &ExportArgs) -> Result<(), Failure> {
    let filter = filter(&args.filter)?;
    let database = Database::find(&args.database)?;
    let reader = database.reader_for(&args.filter)?;
    let options = run::options(&Settings::load(None)?.logkit);
    let mut sinks = args
        .sinks
        .iter()
        .map(|spec| spec::open(spec, &options))
        .collect::<Result<Vec<_>, _>>()?;
    let mut batch = Vec::with_capacity(BATCH);
    let mut n_entries = 0_u64;
    let mut failed = None;
    // What comes in meanwhile, through the very sinks we write, is not taken.
    let last = logkit::query::Filter {
        before_id: Some(reader.last_id()?.saturating_add(1)),
        ..filter
    };
    reader.for_each(&last, |row| {
        batch.push(row.entry);
        n_entries += 1;
        if batch.len() == BATCH {
            failed = write(&mut sinks, &batch).err();
            batch.clear();
        }
        failed.is_none()
    })?;
    if let Some(failure) = failed {
        return Err(failure);
    }
    write(&mut sinks, &batch)?;
    for sink in &mut sinks {
        sink.close()?;
    }
    render::note(format_args!(
        "{n_entries} entries from {} to {}",
        database.path.display(),
        args.sinks.join(", ")
    ));
    Ok(())
}

fn write(sinks: &mut [Box<dyn Sink>], batch: &[logkit::Entry]) -> Result<(), Failure> {
    if !batch.is_empty() {
        for sink in sinks {
            sink.write_batch(batch)?;
        }
    }
    Ok(())
}
