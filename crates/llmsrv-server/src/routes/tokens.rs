//! Text to tokens and back, with the vocabulary of a model and without its weights.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use llmsrv_api::{
    keep_alive::KeepAlive,
    lenient::{Fields, Ids},
    native::{Content, Piece, Tokens},
};
use llmsrv_tokenizer::{Special, Tokenizer};
use serde_json::Value;

use crate::{
    app::App,
    dialect::native::model_name,
    error::{ApiError, refuse},
    guard::read,
    respond,
    tasks::computing,
};

pub(super) async fn tokenize(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let (mut fields, _share) = read(body, MOST_BYTES).await?.parse(Ok).await?;
    let content = fields.text("content")?;
    let content = content.or(fields.text("prompt")?);
    let special = match fields.bool("add_special")? {
        Some(true) => Special::ParseAndAdd,
        _ => Special::Parse,
    };
    let with_pieces = fields.bool("with_pieces")?.unwrap_or(false);
    let tokenizer = tokenizer(&app, &mut fields).await?;
    let content = content.ok_or_else(|| ApiError::bad_request("content is required"))?;
    let body = computing(move || {
        let tokens = tokenizer.encode(&content, special);
        let pieces = tokens.iter().map(|token| piece(&tokenizer, *token));
        let pieces = with_pieces.then(|| pieces.collect());
        respond::json(&Tokens { tokens, pieces })
    });
    body.await
}

pub(super) async fn detokenize(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let body = read(body, MOST_BYTES).await?;
    let (mut fields, _share) = body.parse_with_ids(&["tokens"], Ok).await?;
    let ids = fields.ids("tokens");
    let others = fields.list("tokens")?;
    let tokenizer = tokenizer(&app, &mut fields).await?;
    let tokens = match (ids, others) {
        (Some(Ids::One(tokens)), _) => tokens,
        (Some(Ids::Many(lists)), _) => {
            return Err(not_in_vocabulary(&serde_json::json!(lists.first())));
        }
        (None, Some(tokens)) => {
            let is_id = |token: &Value| token.as_u64().is_some_and(|id| id <= u32::MAX.into());
            let other = tokens.iter().find(|token| !is_id(token));
            return Err(not_in_vocabulary(other.unwrap_or(&Value::Null)));
        }
        (None, None) => refuse!("tokens is required"),
    };
    let content = computing(move || {
        let unknown = tokens
            .iter()
            .find(|id| **id as usize >= tokenizer.vocab_size());
        match unknown {
            None => Ok(tokenizer.decode_with_special(&tokens)),
            Some(id) => Err(not_in_vocabulary(&Value::from(*id))),
        }
    });
    let content = content.await??;
    Ok(respond::json(&Content { content }))
}

fn not_in_vocabulary(token: &Value) -> ApiError {
    ApiError::bad_request(format!("token {token} is not in the vocabulary"))
}

/// Finds the tokenizer of the model a request names.
async fn tokenizer(app: &App, fields: &mut Fields) -> Result<Arc<Tokenizer>, ApiError> {
    let sent = model_name(fields)?.ok_or_else(ApiError::model_required)?;
    let keep_alive = match fields.take("keep_alive") {
        None => None,
        Some(value) => Some(KeepAlive::parse(&value).map_err(ApiError::bad_request)?),
    };
    let stored = app.manager.find(&sent).await?;
    let digest = stored.entry.digest.hex();
    if let Some(tokenizer) = app.manager.tokenizer(&digest, keep_alive) {
        return Ok(tokenizer);
    }
    let default = app.settings.config.keep_alive;
    app.vocabularies.get(stored, keep_alive, default).await
}

/// Returns what a token stands for.
fn piece(tokenizer: &Tokenizer, token: u32) -> Piece {
    if tokenizer.is_control(token) {
        return Piece::Text(tokenizer.decode_with_special(&[token]));
    }
    match String::from_utf8(tokenizer.token_bytes(token).into_owned()) {
        Ok(text) => Piece::Text(text),
        Err(error) => Piece::Bytes(error.into_bytes()),
    }
}

/// Largest body: a book.
const MOST_BYTES: usize = 4 << 20;
