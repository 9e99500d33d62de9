//! Calls: macros, the loop's methods, and the functions that every template has.

use super::{Args, Eval, Frame};
use crate::fail::{fail, runtime, Kind, R};
use crate::methods;
use crate::text::{Builder, Text};
use crate::value::{equal, Global, Value};

const MAX_RANGE: i128 = 100_000;

impl Eval<'_> {
    pub fn call(&mut self, f: &Value, args: Args) -> R<Value> {
        match f {
            Value::Global(g) => self.call_global(*g, args),
            Value::Macro(idx, frame) => self.call_macro(*idx, *frame, args),
            Value::Method(m) => match &m.0 {
                Value::Loop(idx) => self.call_loop(*idx, &m.1, args),
                of => methods::call(of, &m.1, args),
            },
            Value::Undefined(words) => runtime(words.to_string()),
            _ => runtime(format!("'{}' object is not callable", f.type_name())),
        }
    }

    fn call_loop(&mut self, idx: usize, name: &str, args: Args) -> R<Value> {
        let Some(l) = self.loops.get_mut(idx) else { return runtime("the loop has ended") };
        if name == "cycle" {
            return match args.pos.len() {
                0 => runtime("no items for cycling given"),
                n => Ok(args.pos[l.at % n].clone()),
            };
        }
        let now = Value::tuple(args.pos)?;
        let same = match &l.changed {
            Some(old) => equal(old, &now)?,
            None => false,
        };
        l.changed = Some(now);
        Ok(Value::Bool(!same))
    }

    fn call_global(&mut self, g: Global, args: Args) -> R<Value> {
        match g {
            Global::Raise => {
                let words = args.get(0, "message").unwrap_or(Value::None).to_text()?;
                fail(Kind::Refused, words.as_str())
            }
            Global::StrftimeNow => {
                let format = args.get(0, "format").unwrap_or(Value::None).to_text()?;
                crate::fail::spend_bytes(format.len() * 16)?;
                Value::str(&crate::date::strftime(format.as_str(), self.now_s))
            }
            Global::Range => range(&args),
            Global::Dict | Global::Namespace => {
                let mut pairs = vec![];
                match args.pos.first() {
                    None => {}
                    Some(Value::Dict(d)) => pairs.extend(d.items.iter().cloned()),
                    Some(other) => {
                        for pair in other.iterate()? {
                            let kv = pair.iterate()?;
                            match &kv[..] {
                                [k, v] => pairs.push((k.clone(), v.clone())),
                                _ => return runtime("dict() needs pairs"),
                            }
                        }
                    }
                }
                pairs.extend(args.named.into_iter().map(|(k, v)| (Value::Str(Text::new(&k)), v)));
                if g == Global::Dict {
                    return Value::dict(pairs);
                }
                crate::fail::spend_bytes(64 + pairs.len() * 64)?;
                let vars = pairs.into_iter().map(|(k, v)| (k.as_str().unwrap_or("").to_owned(), v)).collect();
                self.namespaces.push(vars);
                Ok(Value::Namespace(self.namespaces.len() - 1))
            }
        }
    }

    fn call_macro(&mut self, idx: usize, frame: usize, mut args: Args) -> R<Value> {
        let decl = &self.template.macros[idx];
        let name = &self.template.names[decl.name as usize];
        let parent = if frame < self.frames.len() { frame } else { 0 };
        self.frames.push(Frame { parent, vars: vec![] });
        let mut rest = args.pos.split_off(args.pos.len().min(decl.params.len())).into_iter();
        let first_default = decl.params.len() - decl.defaults.len();
        for (i, &param) in decl.params.iter().enumerate() {
            let param_name = &self.template.names[param as usize];
            let named = args.named.iter().position(|x| x.0 == *param_name);
            let v = if i < args.pos.len() {
                args.pos[i].clone()
            } else if let Some(at) = named {
                args.named.swap_remove(at).1
            } else if i >= first_default {
                self.expr(&decl.defaults[i - first_default])?
            } else {
                Value::undefined(format!("parameter '{param_name}' was not provided"))
            };
            self.set(param, v);
        }
        if let Some(at) = args.named.iter().position(|x| x.0 == "caller") {
            let caller = args.named.swap_remove(at).1;
            self.set_if_named(self.caller_name, caller);
        }
        if self.varargs_name.is_some() {
            let varargs = Value::tuple(rest.by_ref().collect())?;
            self.set_if_named(self.varargs_name, varargs);
        }
        if self.kwargs_name.is_some() {
            let named = std::mem::take(&mut args.named);
            let kwargs = Value::dict(named.into_iter().map(|(k, v)| (Value::Str(Text::new(&k)), v)).collect())?;
            self.set_if_named(self.kwargs_name, kwargs);
        }
        if rest.next().is_some() {
            return runtime(format!("macro '{name}' takes not more than {} arguments", decl.params.len()));
        }
        if let Some(extra) = args.named.first() {
            return runtime(format!("macro '{name}' takes no keyword argument '{}'", extra.0));
        }
        let line = self.line;
        self.out.push(Builder::default());
        self.block(&decl.body)?;
        self.frames.pop();
        self.line = line;
        Ok(Value::Str(self.out.pop().unwrap_or_default().finish()))
    }
}

fn range(args: &Args) -> R<Value> {
    let ints = args.pos.iter().map(|v| v.as_int()).collect::<Option<Vec<_>>>();
    let (from, to, step) = match ints.as_deref() {
        Some([to]) => (0, *to, 1),
        Some([from, to]) => (*from, *to, 1),
        Some([from, to, step]) => (*from, *to, *step),
        _ => return runtime("range() needs one to three integers"),
    };
    if step == 0 {
        return runtime("range() step must not be zero");
    }
    let span = if step > 0 { to.saturating_sub(from) } else { from.saturating_sub(to) };
    let n = if span <= 0 { 0 } else { (span - 1) / step.saturating_abs() + 1 };
    if n > MAX_RANGE {
        return fail(Kind::Limit, format!("range() of more than {MAX_RANGE} items"));
    }
    Value::list((0..n).map(|i| Value::Int(from + i * step)).collect())
}
