use std::collections::HashMap;
use std::time::{Duration, Instant};

#[derive(Debug, Clone)]
struct Bucket {
    tokens: f64,
    updated: Instant,
}

/// Limits how often each client may call a service.
pub struct Limiter {
    capacity: f64,
    per_second: f64,
    buckets: HashMap<String, Bucket>,
}

impl Limiter {
    pub fn new(capacity: u32, refill: Duration) -> Self {
        Self {
            capacity: f64::from(capacity),
            per_second: 1.0 / refill.as_secs_f64(),
            buckets: HashMap::new(),
        }
    }

    pub fn try_acquire(&mut self, client: &str, now: Instant) -> Result<(), Duration> {
        let bucket = self.buckets.entry(client.to_owned()).or_insert(Bucket {
            tokens: self.capacity,
            updated: now,
        });
        let elapsed = now.saturating_duration_since(bucket.updated).as_secs_f64();
        bucket.tokens = (bucket.tokens + elapsed * self.per_second).min(self.capacity);
        bucket.updated = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            Ok(())
        } else {
            Err(Duration::from_secs_f64((1.0 - bucket.tokens) / self.per_second))
        }
    }
}
