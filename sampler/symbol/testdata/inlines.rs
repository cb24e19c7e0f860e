// A program with inlined functions through Rust's standard library.
use std::collections::HashMap;
use std::thread;

trait Shape {
    fn area(&self) -> f64;
}

struct Square(f64);

impl Shape for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}

fn build(n: usize) -> HashMap<String, Vec<usize>> {
    let mut m: HashMap<String, Vec<usize>> = HashMap::new();
    for i in 0..n {
        m.entry((i % 17).to_string()).or_default().push(i * 3);
    }
    for v in m.values_mut() {
        v.sort_by(|a, b| b.cmp(a));
    }
    m
}

fn main() {
    let n = std::env::args().count() * 100;
    let h = thread::spawn(move || build(n).len());
    let s: Box<dyn Shape> = Box::new(Square(2.0));
    println!("{} {}", h.join().unwrap(), s.area());
}
