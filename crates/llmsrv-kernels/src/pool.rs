//! The threads of the arithmetic. They sleep when there is nothing to compute.

use rayon::{ThreadPool, ThreadPoolBuilder, prelude::*};

/// A fixed number of threads for the parts of one computation.
#[derive(Debug)]
pub struct Pool {
    /// Nothing for a pool of one: the caller's thread does all.
    threads: Option<ThreadPool>,
}

impl Pool {
    /// Starts `n_threads` threads; 0 = one for each core the process may use. Where the system
    /// refuses threads, the caller's does the work.
    pub fn new(n_threads: usize) -> Pool {
        let n_threads = match n_threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n_threads => n_threads.min(MAX_THREADS),
        };
        let build = || {
            ThreadPoolBuilder::new()
                .num_threads(n_threads)
                .thread_name(|i| format!("llmsrv-cpu-{i}"))
                .build()
        };
        Pool {
            threads: (n_threads > 1).then(|| build().ok()).flatten(),
        }
    }

    /// Returns the number of threads that compute.
    pub fn n_threads(&self) -> usize {
        self.threads
            .as_ref()
            .map_or(1, ThreadPool::current_num_threads)
    }

    /// Runs `work`, which is parallel in itself, on these threads alone.
    pub fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match &self.threads {
            Some(threads) => threads.install(work),
            None => work(),
        }
    }

    /// Calls `work` with the index and content of each stretch of `chunk_len` elements, at the same
    /// time where `parallel` says that it pays.
    pub fn for_each_chunk_mut<T: Send>(
        &self,
        values: &mut [T],
        chunk_len: usize,
        parallel: bool,
        work: impl Fn(usize, &mut [T]) + Sync,
    ) {
        let chunk_len = chunk_len.max(1);
        match &self.threads {
            Some(threads) if parallel && values.len() > chunk_len => threads.install(|| {
                values
                    .par_chunks_mut(chunk_len)
                    .enumerate()
                    .for_each(|(index, chunk)| work(index, chunk));
            }),
            _ => values
                .chunks_mut(chunk_len)
                .enumerate()
                .for_each(|(index, chunk)| work(index, chunk)),
        }
    }
}

const MAX_THREADS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_worked_on_once() {
        for n_threads in [1, 2, 5] {
            let pool = Pool::new(n_threads);
            assert_eq!(pool.n_threads(), n_threads);
            for parallel in [false, true] {
                let mut values = vec![0; 1003];
                pool.for_each_chunk_mut(&mut values, 10, parallel, |index, chunk| {
                    for value in chunk {
                        *value += index + 1;
                    }
                });
                assert!(
                    values
                        .iter()
                        .enumerate()
                        .all(|(at, value)| *value == at / 10 + 1)
                );
            }
        }
    }
}
