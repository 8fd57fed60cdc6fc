//! Models that come in, go out and are made.

use llmsrv_api::{catalogue::Catalogue, progress::Progress};
use utoipa::openapi::HttpMethod;

use super::{JSON, LINES, REFUSALS, Row, Schemas};
use crate::{
    create::CreateRequest,
    error::Error,
    routes::{account::Recommendations, registry::TransferRequest},
};

/// Returns the endpoints.
pub(super) fn rows(s: &mut Schemas) -> Vec<Row> {
    let error = s.add::<Error>();
    let progress = s.add::<Progress>();
    let work = |path, what| {
        Row::post(path, MODELS, what).refuses(&error, REFUSALS).answers(
            200,
            "How far it is, line by line, or that it is done; an error after the first line is the last line",
            [(JSON, progress.clone()), (LINES, progress.clone())],
        )
    };
    let blob = |method, what| {
        Row::new(method, "/api/blobs/{digest}", MODELS, what)
            .parameter("digest", "`sha256:` and 64 hexadecimal digits")
    };
    // Refusals with a body.
    let refused = |row: Row, status: u16, why| row.answers(status, why, [(JSON, error.clone())]);
    let cloud = |path| {
        let row = Row::post(path, ACCOUNT, "Something that only a cloud can do");
        let row = refused(row, 401, "A key is missing");
        let row = refused(row, 429, TOO_MANY);
        refused(row, 403, "There is no cloud")
    };
    let account = Row::post("/api/me", ACCOUNT, "Tell who is signed in at the cloud").answers(
        403,
        "The caller is foreign",
        [],
    );
    let account = refused(account, 401, "Nobody: there is no cloud");
    let recommended = "/api/experimental/model-recommendations";
    vec![
        Row::get("/api/catalogue", MODELS, "List models that can be pulled")
            .refuses(&error, &[401, 404])
            .about("With what each would be like on this machine.")
            .gives("The models", s.add::<Catalogue>()),
        work("/api/pull", "Fetch a model from a registry").takes(s.request::<TransferRequest>()),
        work("/api/push", "Send a model to a registry").takes(s.request::<TransferRequest>()),
        work("/api/create", "Make a model")
            .about("From another model, or from files that were sent as blobs before.")
            .takes(s.request::<CreateRequest>()),
        blob(HttpMethod::Post, "Send a file")
            .refuses(&error, &[400, 401, 500, 503])
            .answers(200, "It was there already", [])
            .answers(201, "It is stored", []),
        blob(HttpMethod::Head, "Look whether a file is there")
            .answers(200, "It is", [])
            .answers(400, "That is no digest", [])
            .answers(401, "A key is missing", [])
            .answers(403, "The key's role is too low", [])
            .answers(404, "It is not", [])
            .answers(429, TOO_MANY, []),
        refused(account, 429, TOO_MANY),
        cloud("/api/signout"),
        cloud("/api/experimental/web_search"),
        cloud("/api/experimental/web_fetch"),
        Row::get(
            recommended,
            ACCOUNT,
            "List models that the cloud recommends",
        )
        .refuses(&error, &[401])
        .gives("None", s.add::<Recommendations>()),
    ]
}

const TOO_MANY: &str = "The client has sent too many requests";
const MODELS: &str = "Models";
const ACCOUNT: &str = "Account";
