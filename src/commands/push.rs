//! `llmsrv push`

use serde_json::json;

use crate::{
    cli::PushArgs,
    connect::{Connection, runtime},
    context::Context,
    failure::Failure,
    local::Access,
    logging, transfer,
};

/// Pushes a model.
pub fn run(context: &Context, args: &PushArgs) -> Result<(), Failure> {
    logging::start(context.config(), logging::Style::Command)?;
    runtime()?.block_on(async {
        let connection = Connection::open(context, Access::Use).await?;
        let request = json!({ "model": args.name, "insecure": args.insecure });
        let mut shown = transfer::shown(context, args.json);
        let pushed = transfer::run(&connection.client, "/api/push", &request, &mut shown).await;
        connection.close().await;
        pushed.map_err(|failure| failure.context(format!("cannot push {}", args.name)))
    })
}
