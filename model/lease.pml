/*
 * Claim, lease, extension, reclaim and late results: the part of the queue that has to be right under every order of
 * events. Spin explores all orders; see docs/model.md for what each step stands for in SQL.
 *
 * Time is what is left of it: a lease and a delay count down to 0, so that the model needs no calendar and is finite.
 * A step between `atomic {` and `}` is one SQL statement on one row. What workers report travels through a network
 * that loses, delays, reorders and repeats. Names in capitals are sizes; NO_... takes one guard away (-DNO_FENCING).
 */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef JOBS
#define JOBS 1
#endif
#ifndef MAX_ATTEMPTS
#define MAX_ATTEMPTS 2
#endif
#ifndef LEASE
#define LEASE 1      /* ticks; a lease is over or it is not, so one says as much as many */
#endif
#ifndef DELAY
#define DELAY 1      /* ticks between a failure and the next claim */
#endif
#ifndef IN_FLIGHT
#define IN_FLIGHT 2  /* messages under way at once */
#endif
#ifndef EXTENSIONS
#define EXTENSIONS 1 /* per claim: a handler has a timeout */
#endif
#ifndef RELEASES
#define RELEASES 1   /* in all: each enlarges a budget, and the model must end */
#endif
#ifndef CANCELS
#define CANCELS 1    /* in all */
#endif
#ifndef RETRIES
#define RETRIES 1    /* in all */
#endif

#define NOBODY 255

mtype = { queued, running, retrying, succeeded, dead };
mtype = { complete, fail, release, extend };

typedef Row {
  mtype status;
  byte attempts;
  byte max_attempts;
  byte lease;        /* ticks left; 0 while running: over */
  byte delay         /* ticks until due */
};
typedef Message { mtype kind; byte job; byte attempt; byte worker; bit again };

Row row[JOBS];
Message net[IN_FLIGHT];
byte releases, cancels, retries;

/* What the properties remember; no step looks at it. */
byte holder[JOBS];            /* who made the newest claim */
byte issued[JOBS];            /* and the attempt it was given */
byte granted[JOBS];           /* ticks left of the lease that a worker was promised */
byte wins[JOBS];              /* results "complete" that were accepted */
bit counted[JOBS];            /* whether that attempt has had a result accepted */

/* The guards. */

#define finished(j) (row[j].status == succeeded || row[j].status == dead)
#define due(j)      ((row[j].status == queued || row[j].status == retrying) && row[j].delay == 0)
#define expired(j)  (row[j].status == running && row[j].lease == 0)
#define spent(j)    (row[j].attempts >= row[j].max_attempts)

#ifdef NO_FENCING
#define held(j, a)  (row[j].status == running)
#else
#ifdef NO_RUNNING_GUARD
#define held(j, a)  (row[j].attempts == a)
#else
#define held(j, a)  (row[j].status == running && row[j].attempts == a)
#endif
#endif

#ifdef NO_FENCING
#define may_extend(j, a) (row[j].status == running)
#else
#ifdef NO_EXTEND_GUARD
#define may_extend(j, a) (row[j].attempts == a)
#else
#define may_extend(j, a) (row[j].status == running && row[j].attempts == a)
#endif
#endif

#ifdef NO_LEASE_GUARD
#define may_reclaim(j) (row[j].status == running)
#else
#define may_reclaim(j) expired(j)
#endif

#ifdef NO_CANCEL_GUARD
#define may_cancel(j) (cancels < CANCELS)
#else
#define may_cancel(j) (cancels < CANCELS && !finished(j))
#endif

#ifdef NO_BUDGET_GUARD
#define ends(j) false
#else
#define ends(j) spent(j)
#endif

/* What must hold, after every change of a row. */

#define sound(j) \
  assert(row[j].attempts <= row[j].max_attempts); \
  assert(row[j].status == running || row[j].lease == 0); \
  assert(wins[j] == (row[j].status == succeeded))

/* The moves: marian_jobs.machine's, and SQL's functions of these names. */

inline claim(j) {
  assert(due(j));
  assert(granted[j] == 0);    /* nobody who was promised the job still may count on it */
  row[j].status = running;
  row[j].attempts++;
  row[j].lease = LEASE;
  holder[j] = _pid;
  issued[j] = row[j].attempts;
  counted[j] = 0;
  granted[j] = LEASE;
  printf("worker %d claims job %d: attempt %d\n", _pid, j, row[j].attempts);
  sound(j)
}

inline accept(m, s) {
  assert(row[m.job].status == running);      /* nothing leaves a final state, and nothing waiting has a result */
  assert(m.attempt == issued[m.job]);        /* no result of a stale attempt ... */
  assert(m.worker == holder[m.job]);         /* ... or of a worker whose job another one runs */
  assert(!counted[m.job]);                   /* and one result per attempt */
  counted[m.job] = 1;
  row[m.job].status = s;
  row[m.job].lease = 0;
  granted[m.job] = 0;
  holder[m.job] = NOBODY
}

inline complete_job(m) {
  if
  :: held(m.job, m.attempt) ->
       printf("  accepted: worker %d completes job %d as attempt %d\n", m.worker, m.job, m.attempt);
       wins[m.job]++;
       accept(m, succeeded);
       sound(m.job)
  :: else -> printf("  refused: worker %d completes job %d as attempt %d\n", m.worker, m.job, m.attempt)
  fi
}

inline fail_job(m) {
  if
  :: held(m.job, m.attempt) ->
       printf("  accepted: worker %d fails job %d as attempt %d\n", m.worker, m.job, m.attempt);
       if
       :: ends(m.job) -> accept(m, dead)
       :: else -> accept(m, retrying); row[m.job].delay = DELAY
       fi;
       sound(m.job)
  :: else -> printf("  refused: worker %d fails job %d as attempt %d\n", m.worker, m.job, m.attempt)
  fi
}

inline release_job(m) {
  if
  :: held(m.job, m.attempt) ->
       printf("  accepted: worker %d releases job %d as attempt %d\n", m.worker, m.job, m.attempt);
       accept(m, queued);
       row[m.job].max_attempts++;
       sound(m.job)
  :: else -> printf("  refused: worker %d releases job %d as attempt %d\n", m.worker, m.job, m.attempt)
  fi
}

inline extend_lease(m) {
  if
  :: may_extend(m.job, m.attempt) ->
       printf("  accepted: worker %d extends job %d as attempt %d\n", m.worker, m.job, m.attempt);
       assert(m.attempt == issued[m.job] && m.worker == holder[m.job]);
       row[m.job].lease = LEASE;
       granted[m.job] = LEASE;
       sound(m.job)
  :: else -> printf("  refused: worker %d extends job %d as attempt %d\n", m.worker, m.job, m.attempt)
  fi
}

inline reclaim(j) {
  printf("job %d is reclaimed from attempt %d\n", j, row[j].attempts);
  row[j].lease = 0;
  holder[j] = NOBODY;
  if
  :: ends(j) -> row[j].status = dead
  :: else -> row[j].status = retrying; row[j].delay = 0
  fi;
  sound(j)
}

inline cancel(j) {
  printf("an operator cancels job %d\n", j);
  row[j].status = dead;
  row[j].lease = 0;
  granted[j] = 0;
  holder[j] = NOBODY;
  sound(j)
}

inline retry(j) {
  printf("an operator retries job %d\n", j);
  row[j].status = queued;
  row[j].delay = 0;
  row[j].max_attempts = row[j].attempts + row[j].max_attempts;
  sound(j)
}

/* Who makes them. */

#define LAST (JOBS - 1)   /* JOBS is 1 or 2 */

#define choose(guard)  if :: guard(0) -> j = 0 :: JOBS > 1 && guard(LAST) -> j = LAST fi
#define may_retry(j)   (retries < RETRIES && row[j].status == dead)

#define room (net[0].kind == 0 || net[IN_FLIGHT - 1].kind == 0)

inline say(k) {      /* in the first free place */
  i = (net[0].kind == 0 -> 0 : IN_FLIGHT - 1);
  net[i].kind = k; net[i].job = j; net[i].attempt = attempt; net[i].worker = _pid; net[i].again = 1;
  printf("worker %d says: %e, job %d, attempt %d\n", _pid, k, j, attempt);
  i = 0
}

inline forget(i) {   /* and what is behind it moves up: which place a message has means nothing */
  if
  :: IN_FLIGHT > 1 && i == 0 && net[IN_FLIGHT - 1].kind != 0 ->
       net[0].kind = net[IN_FLIGHT - 1].kind; net[0].job = net[IN_FLIGHT - 1].job;
       net[0].attempt = net[IN_FLIGHT - 1].attempt; net[0].worker = net[IN_FLIGHT - 1].worker;
       net[0].again = net[IN_FLIGHT - 1].again;
       i = IN_FLIGHT - 1
  :: else
  fi;
  net[i].kind = 0; net[i].job = 0; net[i].attempt = 0; net[i].worker = 0; net[i].again = 0
}

proctype Worker() {
  byte i, j, attempt, extensions;
end:
  do
  :: atomic {
       choose(due);
#ifdef NO_LOCK
     };              /* a look ... */
     atomic {        /* ... and a write by id alone */
#endif
       claim(j);
       attempt = row[j].attempts;
       extensions = 0
     };
     do              /* the handler runs; it hears no answer, so it never stops for one */
     :: atomic { extensions < EXTENSIONS && room -> extensions++; say(extend) }
     :: atomic { room -> say(complete); break }
     :: atomic { room -> say(fail); break }
     :: atomic { releases < RELEASES && room -> releases++; say(release); break }
     :: break        /* a crash: nothing is ever said */
     od;
     atomic { j = 0; attempt = 0; extensions = 0 }
  od
}

proctype Network() {
  byte i;
end:
  do
  :: atomic {
       if
       :: net[0].kind != 0 -> i = 0
       :: net[IN_FLIGHT - 1].kind != 0 -> i = IN_FLIGHT - 1
       fi;
       if
       :: true ->    /* delivered, and perhaps once more */
            if
            :: net[i].kind == complete -> complete_job(net[i])
            :: net[i].kind == fail -> fail_job(net[i])
            :: net[i].kind == release -> release_job(net[i])
            :: net[i].kind == extend -> extend_lease(net[i])
            fi;
            if
            :: net[i].again -> net[i].again = 0
            :: forget(i)
            fi
       :: forget(i)   /* lost */
       fi;
       i = 0
     }
  od
}

#define counts(j) (row[j].lease > 0 || row[j].delay > 0 || granted[j] > 0)

inline tick(j) {
  row[j].lease = (row[j].lease > 0 -> row[j].lease - 1 : 0);
  row[j].delay = (row[j].delay > 0 -> row[j].delay - 1 : 0);
  granted[j] = (granted[j] > 0 -> granted[j] - 1 : 0)
}

proctype Clock() {
end:
  do
#if JOBS > 1
  :: atomic { (counts(0) || counts(1)) -> tick(0); tick(1); printf("tick\n") }
#else
  :: atomic { counts(0) -> tick(0); printf("tick\n") }
#endif
  od
}

proctype Reclaimer() {   /* any worker's turn */
  byte j;
end:
  do
  :: atomic { choose(may_reclaim); reclaim(j); j = 0 }
  od
}

proctype Operator() {
  byte j;
end:
  do
  :: atomic { choose(may_cancel); cancels++; cancel(j); j = 0 }
  :: atomic { choose(may_retry); retries++; retry(j); j = 0 }
  od
}

init {
  byte n;
  atomic {
    for (n : 0 .. JOBS - 1) {
      row[n].status = queued;
      row[n].max_attempts = MAX_ATTEMPTS;
      holder[n] = NOBODY
    }
    for (n : 1 .. WORKERS) { run Worker() }
    run Network(); run Clock(); run Operator();
#ifndef NO_RECLAIMER
    run Reclaimer();
#endif
    n = 0
  }
}

/* Once succeeded, for ever; and, with a clock and workers that go on (weak fairness), every job comes to an end. */

ltl succeeded_for_ever { [] ((row[0].status == succeeded) -> [] (row[0].status == succeeded)) }
ltl comes_to_an_end { <> (row[0].status == succeeded || row[0].status == dead) }
