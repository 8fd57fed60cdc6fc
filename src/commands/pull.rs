//! `llmsrv pull`

use serde_json::json;

use crate::{
    cli::PullArgs,
    connect::{Connection, runtime},
    context::Context,
    failure::{Code, Failure},
    local::Access,
    logging, transfer,
};

/// Pulls models, one after another. One that cannot be pulled does not keep the others.
pub fn run(context: &Context, args: &PullArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    runtime()?.block_on(async {
        let connection = Connection::open(context, Access::Add).await?;
        let mut failures = Vec::new();
        for name in &args.names {
            let request = json!({ "model": name, "insecure": args.insecure });
            let mut shown = transfer::shown(context, args.json);
            let pulled = transfer::run(&connection.client, "/api/pull", &request, &mut shown).await;
            if let Err(failure) = pulled {
                failures.push(failure.context(format!("cannot pull {name}")));
            }
        }
        connection.close().await;
        match failures.len() {
            0 => Ok(()),
            1 => Err(failures.remove(0)),
            n => {
                let lines: Vec<String> = failures
                    .iter()
                    .map(|failure| format!("\n  {failure}"))
                    .collect();
                Err(Failure::new(
                    Code::Failed,
                    format!("{n} models are not there:{}", lines.concat()),
                ))
            }
        }
    })
}
