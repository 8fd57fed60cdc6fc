//! Which path does what. Each function turns bytes into a call and a result into bytes.

mod account;
mod blobs;
mod create;
mod embed;
mod models;
mod openapi;
mod registry;
mod text;
mod tokens;
mod web;

use axum::{
    Extension, Router,
    extract::State,
    http::{HeaderMap, Method, Uri, header},
    middleware,
    response::{IntoResponse, Redirect, Response},
    routing::{delete, get, head, post},
};
use http::StatusCode;
use llmsrv_api::{
    native::{Cloud, Health, Status, Version},
    requests::LatestRequests,
};
use tower::util::MapRequestLayer;
use tower_http::{catch_panic::CatchPanicLayer, decompression::RequestDecompressionLayer};

use crate::{
    access::Caller,
    app::{App, Shared},
    error::ApiError,
    guard,
    metrics::Snapshot,
    respond,
};

/// Returns the service that answers the requests of a server.
pub fn router(app: &App) -> Router {
    let shared = Shared(app.clone());
    paths(shared.clone())
        .layer(middleware::from_fn_with_state(shared, guard::check))
        .layer(CatchPanicLayer::custom(|_| {
            tracing::error!("a request handler panicked");
            ApiError::internal("internal error").into_response()
        }))
}

/// The table of paths.
fn paths(shared: Shared) -> Router {
    Router::new()
        .route("/", get(web::root))
        .route("/app/{version}/{file}", get(web::asset))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .route("/openapi.json", get(openapi::openapi))
        .route("/api/version", get(version))
        .route("/api/requests", get(requests))
        .route("/api/status", get(status))
        .route("/api/tags", get(models::tags))
        .route("/api/ps", get(models::ps))
        .route("/api/show", post(models::show))
        .route("/api/blobs/{digest}", head(blobs::head).post(blobs::create))
        .route("/api/create", post(create::create))
        .route("/api/copy", post(models::copy))
        .route("/api/delete", delete(models::delete))
        .route("/api/catalogue", get(registry::catalogue))
        .route("/api/pull", post(registry::pull))
        .route("/api/push", post(registry::push))
        .route("/api/me", post(account::me))
        .route("/api/signout", post(account::no_cloud))
        .route("/api/experimental/web_search", post(account::no_cloud))
        .route("/api/experimental/web_fetch", post(account::no_cloud))
        .route(
            "/api/experimental/model-recommendations",
            get(account::recommendations),
        )
        .route("/api/generate", post(text::generate))
        .route("/api/chat", post(text::chat))
        .route("/api/tokenize", post(tokens::tokenize))
        .route("/api/detokenize", post(tokens::detokenize))
        .route("/v1/models", get(models::openai_list))
        .route("/v1/models/{*model}", get(models::openai_model))
        .route("/v1/chat/completions", post(text::openai_chat))
        .route("/v1/completions", post(text::completions))
        .route("/v1/responses", post(text::responses))
        .route("/v1/messages", post(text::messages))
        .route("/v1/messages/count_tokens", post(text::count_tokens))
        .route("/api/embed", post(embed::embed))
        .route("/api/embeddings", post(embed::embeddings))
        .route("/api/rerank", post(embed::rerank))
        .route("/v1/embeddings", post(embed::openai))
        .route("/v1/rerank", post(embed::rerank))
        .fallback(unknown)
        .method_not_allowed_fallback(|| async {
            (StatusCode::METHOD_NOT_ALLOWED, "405 method not allowed")
        })
        // Some clients compress what they send. The limits on bodies count what it becomes.
        .layer(MapRequestLayer::new(http_front::bound_decompressed))
        .layer(RequestDecompressionLayer::new())
        .layer(MapRequestLayer::new(http_front::count_compressed))
        .with_state(shared)
}

/// For those who watch the server: 503 says that it should get no more work.
async fn health(State(app): State<App>) -> Response {
    if app.is_stopping() {
        let mut response = respond::json(&Health {
            status: "stopping".into(),
        });
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        return response;
    }
    respond::json(&Health {
        status: "ok".into(),
    })
}

async fn metrics(State(app): State<App>, headers: HeaderMap) -> Response {
    let asked = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok());
    let open_metrics = asked.is_some_and(|accept| accept.contains("application/openmetrics-text"));
    let present = Snapshot {
        models: app.manager.figures(),
        waiting: app.manager.n_waiting(),
        memory: app.manager.memory(),
    };
    let kind = if open_metrics {
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    } else {
        "text/plain; version=0.0.4; charset=utf-8"
    };
    let text = app.metrics.render(&present, open_metrics);
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

async fn requests(State(app): State<App>) -> Response {
    let requests = app.latest_requests.list();
    respond::json(&LatestRequests { requests })
}

async fn version(State(app): State<App>) -> Response {
    respond::json(&Version {
        version: app.settings.version.clone(),
        llmsrv_version: env!("CARGO_PKG_VERSION").into(),
    })
}

/// There is no cloud here. The role tells a page what it may offer.
async fn status(Extension(Caller(role)): Extension<Caller>) -> Response {
    respond::json(&Status {
        cloud: Cloud {
            disabled: true,
            source: "env".into(),
        },
        role: role.word().into(),
    })
}

/// A slash too many is forgiven with a redirect to the path without it.
async fn unknown(method: Method, uri: Uri) -> Response {
    let path = uri.path();
    let trimmed = path.trim_end_matches('/');
    // Never to another host: browsers read `//host` and `/\host` as one.
    let plain = trimmed
        .as_bytes()
        .get(1)
        .is_some_and(u8::is_ascii_alphanumeric);
    if trimmed.len() < path.len() && plain {
        let target = uri
            .query()
            .map_or_else(|| trimmed.to_owned(), |query| format!("{trimmed}?{query}"));
        return if method == Method::GET {
            (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, target)]).into_response()
        } else {
            Redirect::temporary(&target).into_response()
        };
    }
    (StatusCode::NOT_FOUND, "404 page not found").into_response()
}
