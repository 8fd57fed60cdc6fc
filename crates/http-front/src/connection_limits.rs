//! The connections that are open: how many there may be, of one address and of all, and which of
//! them has to leave when there are too many.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// All connections. One that waits for a request, or for the beginning of one, is idle.
#[derive(Debug)]
pub struct ConnectionLimits {
    most: usize,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    /// A connection has ended, or has become idle.
    changed: Notify,
    was_full: AtomicBool,
}

#[derive(Debug)]
struct Connection {
    address: IpAddr,
    /// Requests that are not answered to their end.
    n_running: AtomicUsize,
    idle_since: Mutex<Instant>,
    leave: Notify,
    is_leaving: AtomicBool,
}

/// The place of one connection; its drop makes room.
#[derive(Debug)]
pub struct ConnectionPermit {
    id: u64,
    limits: Arc<ConnectionLimits>,
    connection: Arc<Connection>,
}

/// A request on its way, until it is dropped.
#[derive(Debug)]
pub struct Running {
    limits: Arc<ConnectionLimits>,
    connection: Arc<Connection>,
}

impl ConnectionLimits {
    /// Makes room for so many connections.
    pub fn new(most: usize) -> Arc<ConnectionLimits> {
        Arc::new(ConnectionLimits {
            most,
            open: Mutex::default(),
            changed: Notify::new(),
            was_full: AtomicBool::new(false),
        })
    }

    /// Waits until there is room for one more. Where there is none, the address with the most
    /// connections loses the one that has been idle longest.
    pub async fn room(&self) {
        loop {
            let changed = self.changed.notified();
            if self.open().len() < self.most {
                return;
            }
            if !self.was_full.swap(true, Ordering::Relaxed) {
                tracing::warn!("the limit of connections is reached; idle ones are closed");
            }
            self.close_idle();
            changed.await;
        }
    }

    /// Closes the longest idle connection of the address that has the most; `false` = none is idle.
    pub fn close_idle(&self) -> bool {
        let open = self.open();
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for connection in open.values() {
            *counts.entry(connection.address).or_default() += 1;
        }
        let idle = open.values().filter_map(|connection| {
            let since = connection.idle()?;
            Some((counts[&connection.address], since, connection))
        });
        // The most connections first, then the longest time.
        let first = idle
            .min_by(|(n_a, since_a, _), (n_b, since_b, _)| n_b.cmp(n_a).then(since_a.cmp(since_b)));
        first
            .inspect(|(_, _, connection)| connection.leave())
            .is_some()
    }

    /// Gives a connection its place. `None` where its address has as many as one may have and all of
    /// them work.
    pub fn enter(self: &Arc<ConnectionLimits>, address: SocketAddr) -> Option<ConnectionPermit> {
        let address = network(address.ip());
        let mut open = self.open();
        let same = open
            .values()
            .filter(|connection| connection.address == address);
        if same.clone().count() >= most_of_one(self.most) {
            let idle = same.filter_map(|connection| Some((connection.idle()?, connection)));
            let (_, oldest) = idle.min_by_key(|(since, _)| *since)?;
            oldest.leave();
        }
        let connection = Arc::new(Connection {
            address,
            n_running: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            leave: Notify::new(),
            is_leaving: AtomicBool::new(false),
        });
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        open.insert(id, connection.clone());
        Some(ConnectionPermit {
            id,
            limits: self.clone(),
            connection,
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock()
    }
}

impl Connection {
    /// Returns since when nothing runs. One that leaves already makes no more room.
    fn idle(&self) -> Option<Instant> {
        let since = self.idle_since.lock();
        let works = self.n_running.load(Ordering::Relaxed) > 0;
        (!works && !self.is_leaving.load(Ordering::Relaxed)).then_some(*since)
    }

    fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.leave.notify_one();
    }
}

impl ConnectionPermit {
    /// A request has begun.
    pub fn request(&self) -> Running {
        self.connection.n_running.fetch_add(1, Ordering::Relaxed);
        Running {
            limits: self.limits.clone(),
            connection: self.connection.clone(),
        }
    }

    /// Returns when the connection has to leave.
    pub async fn told_to_leave(&self) {
        self.connection.leave.notified().await;
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limits.open().remove(&self.id);
        self.limits.changed.notify_one();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        {
            let mut since = self.connection.idle_since.lock();
            self.connection.n_running.fetch_sub(1, Ordering::Relaxed);
            *since = Instant::now();
        }
        self.limits.changed.notify_one();
    }
}

/// Returns whom an address belongs to. Of an IPv6 address only the network counts: one machine has the
/// rest of it to itself, and could fill the memory with it.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let network = u128::from(v6) & (u128::MAX << 64);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Connections that one address may have: three quarters of all, so that it keeps nobody out.
fn most_of_one(most: usize) -> usize {
    most - most / 4
}

static NEXT: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn enter(limits: &Arc<ConnectionLimits>, address: &str) -> Option<ConnectionPermit> {
        limits.enter(format!("{address}:1").parse().unwrap())
    }

    fn has_to_leave(place: &ConnectionPermit) -> bool {
        place.told_to_leave().now_or_never().is_some()
    }

    #[test]
    fn the_longest_idle_of_the_largest_crowd_leaves_first() {
        let limits = ConnectionLimits::new(8);
        let alone = enter(&limits, "10.0.0.1").unwrap();
        let many: Vec<ConnectionPermit> = (0..5)
            .map(|_| enter(&limits, "10.0.0.2").unwrap())
            .collect();
        let works = many[0].request();
        assert!(limits.close_idle());
        let told: Vec<bool> = many.iter().map(has_to_leave).collect();
        assert_eq!(
            told,
            [false, true, false, false, false],
            "the first one works"
        );
        assert!(!has_to_leave(&alone));
        drop(works);
        assert!(
            many[0].connection.idle() > many[4].connection.idle(),
            "idle anew"
        );
    }

    #[test]
    fn one_address_never_has_all_places() {
        let limits = ConnectionLimits::new(8);
        let mut places: Vec<ConnectionPermit> = (0..6)
            .map(|_| enter(&limits, "10.0.0.2").unwrap())
            .collect();
        let running: Vec<Running> = places[1..].iter().map(ConnectionPermit::request).collect();
        let seventh = enter(&limits, "10.0.0.2").unwrap();
        assert!(has_to_leave(&places[0]), "the idle one makes room");
        let last = seventh.request();
        drop(places.remove(0));
        assert!(enter(&limits, "10.0.0.2").is_none(), "all of them work");
        assert!(enter(&limits, "10.0.0.3").is_some());
        drop((running, last));
    }
}
