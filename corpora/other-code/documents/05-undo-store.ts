type Listener<S> = (state: S) => void;

interface Snapshot<S> {
  readonly state: S;
  readonly label: string;
}

export class UndoStore<S extends object> {
  private past: Snapshot<S>[] = [];
  private future: Snapshot<S>[] = [];
  private readonly listeners = new Set<Listener<S>>();
  private current: S;
  private readonly limit: number;

  constructor(initial: S, limit = 100) {
    this.current = initial;
    this.limit = limit;
  }

  get state(): S {
    return this.current;
  }

  update(label: string, change: (state: S) => Partial<S>): void {
    const next = { ...this.current, ...change(this.current) };
    this.past = [...this.past, { state: this.current, label }].slice(-this.limit);
    this.future = [];
    this.replace(next);
  }

  undo(): string | undefined {
    const last = this.past.pop();
    if (!last) return undefined;
    this.future.push({ state: this.current, label: last.label });
    this.replace(last.state);
    return last.label;
  }

  redo(): string | undefined {
    const next = this.future.pop();
    if (!next) return undefined;
    this.past.push({ state: this.current, label: next.label });
    this.replace(next.state);
    return next.label;
  }

  subscribe(listener: Listener<S>): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private replace(state: S): void {
    this.current = state;
    for (const listener of this.listeners) listener(state);
  }
}
