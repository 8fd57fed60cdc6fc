//! The HTTP service.

mod page;
mod read;
mod stream;
mod write;

use std::time::Instant;

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_front::MinRateBody;
use logkit::MetricsFormat;
use serde_json::json;

use crate::{
    app::App,
    metrics, otlp,
    refusal::{Refusal, json_answer},
};

/// The routes. `openapi.json` describes each; a test compares.
pub(crate) fn router(app: App) -> Router {
    Router::new()
        .route("/log", post(write::single))
        .route("/log/batch", post(write::batch))
        .route("/logs", get(read::logs))
        .route("/logs/stream", get(stream::logs))
        .route("/logs/{id}", get(read::one))
        .route("/health", get(health))
        .route("/metrics", get(figures))
        .route("/openapi.json", get(page::openapi))
        .route("/v1/logs", post(otlp::logs))
        .route("/v1/traces", post(otlp::traces))
        .route("/", get(page::page))
        .fallback(|| async { Refusal::new(StatusCode::NOT_FOUND, "Not Found") })
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
        })
        .layer(middleware::from_fn_with_state(app.clone(), watched))
        .with_state(app)
}

/// Lets in who may come in, and counts.
async fn watched(State(app): State<App>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let route = metrics::route(request.uri().path());
    let allowed = app.guard.origin(request.headers(), request.uri());
    let mut response = match &allowed {
        Err(_) => Refusal::new(
            StatusCode::FORBIDDEN,
            "This origin or name of the server is not allowed; call an address of the server, send an API \
             key, or let the owner allow the origin",
        )
        .into_response(),
        Ok(Some(_)) if *request.method() == Method::OPTIONS => preflight(),
        Ok(_) if !is_open(route) && !app.guard.knows(request.headers()) => {
            Refusal::no_key().into_response()
        }
        Ok(_) => {
            let waits = request.headers().contains_key(header::EXPECT);
            let request = request.map(|body| Body::new(MinRateBody::new(body, waits)));
            next.run(request).await
        }
    };
    let headers = response.headers_mut();
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    if let Ok(Some(origin)) = allowed {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("Origin"));
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("X-Next-Cursor, Link, Retry-After"),
        );
    }
    app.metrics
        .request(route, response.status(), began.elapsed());
    response
}

/// What needs no key: the page, which asks for one, and what probes look at.
fn is_open(route: &str) -> bool {
    matches!(route, "/" | "/health" | "/openapi.json")
}

fn preflight() -> Response {
    (
        StatusCode::NO_CONTENT,
        [
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
            (
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                "Authorization, Content-Type, Content-Encoding, X-API-Key, Last-Event-ID",
            ),
            (header::ACCESS_CONTROL_MAX_AGE, "3600"),
        ],
    )
        .into_response()
}

async fn health(State(app): State<App>, headers: HeaderMap) -> Response {
    let failing = app.store.is_failing();
    let mut body = json!({ "status": if failing { "failing" } else { "ok" } });
    if app.guard.knows(&headers) {
        body["db"] = app.store.path().into();
    }
    let status = if failing {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    (status, json_answer(&body)).into_response()
}

/// `GET /metrics`
async fn figures(State(app): State<App>, headers: HeaderMap) -> Response {
    let wants_open = headers.get(header::ACCEPT).is_some_and(|accept| {
        let accept = accept.as_bytes();
        accept
            .windows(OPEN_METRICS.len())
            .any(|part| part == OPEN_METRICS)
    });
    let format = if wants_open {
        MetricsFormat::OpenMetrics
    } else {
        MetricsFormat::Prometheus
    };
    let page = app.metrics.page(&app.store, format);
    ([(header::CONTENT_TYPE, format.content_type())], page).into_response()
}

const OPEN_METRICS: &[u8] = b"application/openmetrics-text";
