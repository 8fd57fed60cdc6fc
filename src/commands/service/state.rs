//! What is known of the service, in words and for scripts.

use std::fmt::Write as _;

use llmsrv_host::{
    systemd::{Scope, Unit},
    unit::NAME,
};
use serde_json::{Value, json};

use crate::term;

/// What is known of a unit, for scripts.
pub fn json_of(unit: &Unit) -> Value {
    json!({
        "installed": true,
        "scope": unit.scope.word(),
        "active": unit.active,
        "sub": unit.sub,
        "result": unit.result,
        "enabled": unit.enabled,
        "pid": unit.pid,
        "restarts": unit.restarts,
        "since": unit.since,
        "file": unit.file,
        "address": unit.address,
        "needs_reload": unit.needs_reload,
    })
}

/// Describes a unit in some lines.
pub(super) fn lines(unit: &Unit) -> Vec<String> {
    let (strong, sign) = (term::STRONG, if unit.is_active() { "●" } else { "○" });
    let mut lines = vec![format!(
        "{strong}{sign}{strong:#} {NAME}: {}",
        in_words(unit)
    )];
    let mut row = |name: &str, value: String| lines.push(format!("  {name:<9}{value}"));
    if let Some(pid) = unit.pid {
        row("Process", pid.to_string());
    }
    if let Some(address) = &unit.address {
        row("Address", address.clone());
    }
    if unit.restarts > 0 {
        row("Restarts", unit.restarts.to_string());
    }
    if let Some(file) = &unit.file {
        row("Unit", file.display().to_string());
    }
    if unit.needs_reload {
        row(
            "Note",
            "the unit was changed: systemctl daemon-reload".into(),
        );
    }
    lines
}

/// Says how a unit is: `active (running) since ..., enabled, of the machine`.
pub fn in_words(unit: &Unit) -> String {
    let mut text = format!("{} ({})", unit.active, unit.sub);
    if !unit.since.is_empty() {
        let _ = write!(text, " since {}", unit.since);
    }
    if !matches!(unit.result.as_str(), "" | "success") {
        let _ = write!(text, ", ended with {}", unit.result);
    }
    let whose = match unit.scope {
        Scope::System => "of the machine",
        Scope::User => "of this user",
    };
    let enabled = if unit.enabled.is_empty() {
        "not enabled"
    } else {
        &unit.enabled
    };
    format!("{text}, {enabled}, {whose}")
}
