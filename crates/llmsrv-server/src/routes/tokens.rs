//! Text to tokens and back, with the vocabulary of a model and without its weights.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use llmsrv_api::{
    keep_alive::KeepAlive,
    lenient::Ids,
    members::IdsOr,
    native::{Content, Piece, Tokens},
    request,
};
use llmsrv_tokenizer::{Special, Tokenizer};
use serde_json::Value;

use crate::{
    app::App,
    dialect::native::Named,
    error::{ApiError, refuse},
    guard::read,
    respond,
    tasks::computing_on,
};

request! {
    pub(super) struct TokenizeRequest with vocabulary: VocabularyPart {
        /// The text; `prompt` is understood, too.
        #[schema(value_type = String)] content: Option<String>,
        #[schema(ignore)] prompt: Option<String>,
        /// Add the tokens that begin and end a text; off by default.
        add_special: Option<bool>,
        /// Tell what each token stands for.
        with_pieces: Option<bool>,
    }

    pub(super) struct DetokenizeRequest with vocabulary: VocabularyPart {
        #[schema(value_type = Vec<u32>)] tokens: Option<IdsOr>,
    }

    struct VocabularyPart with named: Named {
        keep_alive: Option<KeepAlive>,
    }
}

pub(super) async fn tokenize(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let body = read(body, MOST_BYTES).await?;
    let (request, _share) = body.parse(Ok::<TokenizeRequest, _>).await?;
    let special = match request.add_special {
        Some(true) => Special::ParseAndAdd,
        _ => Special::Parse,
    };
    let with_pieces = request.with_pieces.unwrap_or(false);
    let tokenizer = request.vocabulary.tokenizer(&app).await?;
    let content = request.content.or(request.prompt);
    let content = content.ok_or_else(|| ApiError::bad_request("content is required"))?;
    let body = computing_on(content.len(), move || {
        let tokens = tokenizer.encode(&content, special);
        let pieces = tokens.iter().map(|token| piece(&tokenizer, *token));
        let pieces = with_pieces.then(|| pieces.collect());
        respond::json(&Tokens { tokens, pieces })
    });
    body.await
}

pub(super) async fn detokenize(State(app): State<App>, body: Body) -> Result<Response, ApiError> {
    let body = read(body, MOST_BYTES).await?;
    let (request, _share) = body.parse(Ok::<DetokenizeRequest, _>).await?;
    if matches!(&request.tokens, Some(IdsOr::Other(other)) if !other.is_array()) {
        refuse!("tokens must be a list");
    }
    let tokenizer = request.vocabulary.tokenizer(&app).await?;
    let tokens = match request.tokens {
        None => refuse!("tokens is required"),
        Some(IdsOr::Ids(Ids::One(tokens))) => tokens,
        Some(IdsOr::Ids(Ids::Many(lists))) => {
            return Err(not_in_vocabulary(&serde_json::json!(lists.first())));
        }
        Some(IdsOr::Other(others)) => {
            let is_id = |token: &&Value| token.as_u64().is_some_and(|id| id <= u32::MAX.into());
            let mut others = others.as_array().into_iter().flatten();
            let other = others.find(|token| !is_id(token));
            return Err(not_in_vocabulary(other.unwrap_or(&Value::Null)));
        }
    };
    let content = computing_on(size_of_val(&tokens[..]), move || {
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

impl VocabularyPart {
    /// Finds the tokenizer of the model a request names.
    async fn tokenizer(self, app: &App) -> Result<Arc<Tokenizer>, ApiError> {
        let stored = app.manager.find(&self.named.required()?).await?;
        let digest = stored.entry.digest.hex();
        if let Some(tokenizer) = app.manager.tokenizer(&digest, self.keep_alive) {
            return Ok(tokenizer);
        }
        let default = app.settings.config.keep_alive;
        app.vocabularies.get(stored, self.keep_alive, default).await
    }
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
