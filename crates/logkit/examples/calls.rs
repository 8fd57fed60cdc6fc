//! Logged functions, and what the database knows of them afterwards.
//!
//! `cargo run -p logkit --example calls`

use std::time::Duration;

use logkit::{
    DbSink, Durability, Logger, catch, console_line, log_call, logged,
    query::{Filter, Reader},
    set_default_logger,
};

#[log_call(level = "info")]
fn price(article: &str, n: u32, api_key: &str) -> Result<u32, std::num::ParseIntError> {
    let _ = api_key;
    Ok(article.parse::<u32>()? * n)
}

#[catch(default = 0)]
fn share(total: u32, people: u32) -> u32 {
    total / people
}

struct Cart {
    total: u32,
}

#[logged]
impl Cart {
    pub fn add(&mut self, article: &str, n: u32) {
        self.total += price(article, n, "k-123").unwrap_or_default();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("logs.db");
    let logger = Logger::builder()
        .sink(DbSink::open(&path, "logs", Durability::Buffered)?)
        .build();
    set_default_logger(logger.clone());

    let mut cart = Cart { total: 0 };
    cart.add("20", 3);
    cart.add("twenty", 1);
    std::panic::set_hook(Box::new(|_| {}));
    share(cart.total, 0);
    logger.flush(Duration::from_secs(5));

    let mut text = String::new();
    let reader = Reader::open(&path, "logs")?;
    for row in reader.rows(&Filter::default())? {
        text += &console_line(&row.entry, "calls", logkit::ConsoleTime::default());
        text.push('\n');
    }
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())?;
    Ok(())
}
