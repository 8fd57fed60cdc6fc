//! `llmsrv push`

use serde_json::json;

use crate::{
    cli::PushArgs, connect::Connection, context::Context, failure::Failure, local::Access, transfer,
};

/// Pushes a model.
pub fn run(context: &Context, args: &PushArgs) -> Result<(), Failure> {
    Connection::with(context, Access::Use, async |connection| {
        let request = json!({ "model": args.name, "insecure": args.insecure });
        let mut shown = transfer::shown(context, args.json);
        let pushed = transfer::run(&connection.client, "/api/push", &request, &mut shown).await;
        pushed.map_err(|failure| failure.context(format!("cannot push {}", args.name)))
    })
}
