//! How many requests one client may send: a bucket for each key, or each address without a key.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _};
use http_front::network;
pub use llmsrv_config::Rate;

/// Whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Client {
    Key(Arc<str>),
    Address(IpAddr),
}

impl Client {
    /// A caller without a key.
    pub(crate) fn at(address: IpAddr) -> Client {
        Client::Address(network(address))
    }
}

impl Client {
    /// Says whose request this is while it is answered.
    pub(crate) async fn answered<T>(self, answer: impl Future<Output = T>) -> T {
        ASKING.scope(self, answer).await
    }

    /// Returns whose request is being answered; this machine where nobody said.
    pub(crate) fn of_this_request() -> Client {
        let this_machine = |_| Client::at(Ipv4Addr::LOCALHOST.into());
        ASKING.try_with(Client::clone).unwrap_or_else(this_machine)
    }
}

tokio::task_local! {
    static ASKING: Client;
}

/// Counts requests.
pub(crate) struct Limiter {
    pub(crate) rate: Rate,
    buckets: DefaultKeyedRateLimiter<Client>,
    checks: AtomicU32,
}

impl Limiter {
    pub(crate) fn new(rate: Rate) -> Limiter {
        let every = (rate.per / rate.count.get()).max(Duration::from_nanos(1));
        let quota = Quota::with_period(every)
            .unwrap_or_else(|| Quota::per_second(rate.count))
            .allow_burst(rate.count);
        Limiter {
            rate,
            buckets: RateLimiter::hashmap(quota),
            checks: AtomicU32::new(0),
        }
    }

    /// Counts a request; an error says how long to wait for the next one.
    pub(crate) fn check(&self, client: &Client) -> Result<(), Duration> {
        // Clients that have been quiet are forgotten now and then.
        if self.checks.fetch_add(1, Ordering::Relaxed) % SWEEP == SWEEP - 1 {
            self.buckets.retain_recent();
            self.buckets.shrink_to_fit();
        }
        let checked = self.buckets.check_key(client);
        checked.map_err(|until| until.wait_time_from(self.buckets.clock().now()))
    }
}

const SWEEP: u32 = 4096;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    #[test]
    fn clients_are_counted_apart_and_told_how_long_to_wait() {
        let limiter = Limiter::new(Rate {
            count: NonZeroU32::new(3).unwrap(),
            per: Duration::from_hours(1),
        });
        let ann = Client::Key("ann".into());
        let there = Client::at("10.0.0.1".parse().unwrap());
        for client in [&ann, &there] {
            for _ in 0..3 {
                assert_eq!(limiter.check(client), Ok(()));
            }
            let wait = limiter.check(client).unwrap_err();
            assert!(
                wait > Duration::from_mins(19) && wait <= Duration::from_mins(20),
                "{wait:?}"
            );
        }
    }

    #[test]
    fn quiet_clients_are_forgotten() {
        let limiter = Limiter::new(Rate {
            count: NonZeroU32::new(1_000_000).unwrap(),
            per: Duration::from_secs(1),
        });
        for n in 0..SWEEP * 8 {
            let _ = limiter.check(&Client::at(IpAddr::V4(n.into())));
        }
        assert!(
            limiter.buckets.len() <= 2 * SWEEP as usize,
            "{}",
            limiter.buckets.len()
        );
    }

    #[test]
    fn one_machine_is_one_client() {
        let at = |text: &str| Client::at(text.parse().unwrap());
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff:1"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:10.0.0.1"), at("10.0.0.1"));
        // Any rate makes a limiter.
        for count in [1, u32::MAX] {
            let count = NonZeroU32::new(count).unwrap();
            let per = Duration::from_secs(1);
            assert!(Limiter::new(Rate { count, per }).check(&at("::1")).is_ok());
        }
    }
}
