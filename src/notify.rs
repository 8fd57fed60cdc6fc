//! Telling the manager of services how the server is. Without one (no `NOTIFY_SOCKET`) nothing
//! happens.

use std::time::Duration;

use llmsrv_server::App;
use sd_notify::NotifyState;

/// The server listens, and its store was found to be usable.
pub fn ready(url: &str) {
    let status = format!("listens on {url}");
    send(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// The server reads its settings again.
pub fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => send(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the manager of services is not told of the reload"),
    }
}

/// The server has read its settings again.
pub fn ready_again() {
    send(&[NotifyState::Ready]);
}

/// The server ends.
pub fn stopping() {
    send(&[NotifyState::Stopping]);
}

/// Shows the manager that the server is alive, as often as it wants that, each time after the
/// server has shown it to us. A server that hangs is silent here and is started again.
pub async fn watch(app: App) {
    let Some(timeout) = sd_notify::watchdog_enabled() else {
        return;
    };
    // Three beats in the time, so that one may be late.
    let mut beat = tokio::time::interval((timeout / 3).max(Duration::from_millis(1)));
    beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        beat.tick().await;
        app.is_alive().await;
        send(&[NotifyState::Watchdog]);
    }
}

fn send(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the manager of services cannot be told");
    }
}
