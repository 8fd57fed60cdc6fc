//! `llmsrv pull`

use serde_json::json;

use crate::{
    cli::PullArgs, connect::Connection, context::Context, failure::Failure, local::Access, transfer,
};

/// Pulls models, one after another. One that cannot be pulled does not keep the others.
pub fn run(context: &Context, args: &PullArgs) -> Result<(), Failure> {
    Connection::with(context, Access::Add, async |connection| {
        let mut failures = Vec::new();
        for name in &args.names {
            let request = json!({ "model": name, "insecure": args.insecure });
            let mut shown = transfer::shown(context, args.json);
            let pulled = transfer::run(&connection.client, "/api/pull", &request, &mut shown).await;
            if let Err(failure) = pulled {
                failures.push(failure.context(format!("cannot pull {name}")));
            }
        }
        Failure::together(failures, "models are not there")
    })
}
