/* The protocol of operation, arbiter, collector, lender and shutdown (docs/assurance.md). tools/check-model checks
 * it: with every guard in place the assertions hold in every state; what happens without each is listed in runs.txt.
 *
 * What runs: one process an actor (adapter, arbiter, lender, supervisor), and one an operation for all that is not in
 * our hands about it (`world`): its host, the provider on its worker, the collector's look at it, the device. A
 * message is handled in one step, as CAF does; messages between those actors wait in one bounded FIFO a sender and
 * receiver, and between two of those there is no order (in one process CAF keeps more; the code may not rely on it).
 * The operation's own transitions are generated from transitions.txt, which a test walks beside the production core;
 * the rest is written from the sources named at each part. A switch REMOVE_GUARD, seen here as off_GUARD, removes a
 * guard; its name is that of the mutation of the code (src/guard.hpp, actors/guard.hpp).
 *
 * Ghosts say what is true and no actor can see: `touch` (the backend may touch the operation's slot), `local_touch`
 * (our copy may), `guard` (the host reads it). The assertions about memory look at those, not at what the actors
 * believe.
 *
 * What is abstracted, and why that is sound (S) or a bound (B: more is not shown):
 * S Time has no length. A request's deadline may have passed at any moment after its exposure, its grace at any
 *   moment after its drain, or its deadline, began; that includes every real timing. How long T is, that boundaries
 *   are inclusive, and the timer's hops are the business of tests (rules 4).
 * S Time passes only right before the arbiter acts. Nobody else reads clocks, so every other step commutes with it.
 *   And since each of its handlers commits first what has elapsed, time that passes right before a message is handled
 *   is the timer's step and then the message; LATE=1 has it both ways, and finds as many states (runs `late` and
 *   `on_time`).
 * S The world is as bad as the contract lets it be: it touches memory until the very moment at which it says
 *   truthfully that it does not (a rejection, an access end, a copy's event), says anything else at any time, or
 *   falls silent for good. What it says is heard when it is said: how long it is under way is how late it is said.
 *   What a dead backend or collector had sent may so be heard after the news of its death. One that lies in those
 *   statements is outside the model, as it is outside the contract (2.2, 2.4); the detectors of exposure (rules 8)
 *   are for that.
 * S A question and its answer (the supervisor's steps, a host's calls) are one step, at the time at which it is
 *   handled.
 * S The backend actor only passes on, so it is its worker. The manager's pin and the CUDA actor's copy are one step
 *   of the device, and their deaths are one. A page is pinned or not, as the manager likes.
 * S awaiting_proof and the cancel's answer change only what is shown, and are left out.
 * B Two operations at most, of one slot each, that live once; one part; one host's cancel, retried proof and read
 *   guard an operation; one death, not the supervisor's. Foreign evidence may come any number of times.
 * B Two bad outcomes (failed, cancelled) are not told apart. Routes and the proof ladder's choice of rungs are left
 *   out; a rung's new proof is a retried one.
 */

#ifndef OPS
#define OPS 2      /* operations */
#endif
#ifndef SLOTS
#define SLOTS 1    /* of the one staging part */
#endif
#ifndef DEATHS
#define DEATHS 1   /* actors that may die */
#endif
#ifndef STOP
#define STOP 1     /* the host may shut down */
#endif
#ifndef LATE
#define LATE 0     /* 1: time passes also right before a message is handled (see below) */
#endif
#ifndef GUARDS
#define GUARDS OPS   /* of so many operations the host may read the slot */
#endif
#ifndef RETRIES
#define RETRIES OPS  /* of so many it may retry a disputed proof */
#endif
#ifndef QUEUE
#define QUEUE 1    /* 0: the second lease waits from the first one's grant on, and stays */
#endif
#ifndef WAY_OF_0
#define WAY_OF_0 way_fetch
#endif
#ifndef WAY_OF_1
#define WAY_OF_1 way_publish
#endif

#define REG OPS           /* the registrations' claim, and its owner at the arbiter */
#if OPS > 1
#define OWNERS 3
#else
#define OWNERS 2
#endif

#include "transitions.pml"   /* generated: values, off_GUARD, and on_EVENT(o) */

/* ---- actors and their deaths (actors/supervisor.cpp) ---------------------------------------------------------- */
#define NOBODY 0
#define AD 1
#define AR 2
#define BE 3
#define CO 4
#define LE 5
#define DV 6  /* the manager or the CUDA actor */
byte dead = NOBODY;
bool ad_told, ar_told, le_told, su_told;  /* peer_down has been handled there */
#define up(x) (dead != (x))

chan ad2ar = [8] of { byte, byte };
chan ar2ad = [8] of { byte, byte };
chan ad2le = [5] of { byte, byte };
chan le2ad = [4] of { byte, byte };

/* kinds of messages */
#define m_expose 1
#define m_commit_good 2
#define m_commit_bad 3
#define m_retain 4
#define m_settle 5
#define m_retired 6
#define m_track 7
#define m_granted 11
#define m_refused 12
#define m_decided_good 13
#define m_decided_bad 14
#define m_settled 15
#define m_not_settled 16
#define m_fatal 17
#define m_hold 41
#define m_release_hold 42
#define m_parts_registered 43
#define m_finish 44
#define m_finish_marking 45
#define m_return 46
#define m_held 51
#define m_copies_ended 52
#define m_copies_lost 53

#ifdef BREADTH_FIRST  /* which spin does not do with hidden variables */
byte m, w, i, k;
#else
hidden byte m, w, i, k;  /* of the step under way; each is set before it is used */
#endif

inline to_arbiter(kind, whom) { if :: up(AR) -> ad2ar!kind,whom :: else fi }
inline to_lender(kind, whom) { if :: up(LE) -> ad2le!kind,whom :: else fi }
inline to_adapter(from, way_in, kind, whom) { if :: up(AD) && up(from) -> way_in!kind,whom :: else fi }

/* ---- what is true ----------------------------------------------------------------------------------------------- */
bool touch[OPS];         /* from the call on, the backend may touch the slot */
bool local_touch[OPS];   /* so may our copy */
byte guard[OPS];         /* 0: never, 1: open, 2: gone */
bool live;               /* the provider's registration of the part */
bool freed;              /* the staging memory has gone */
#define quiet(o) (!touch[o] && !local_touch[o] && guard[o] != 1)

/* ---- the ledger (src/ledger.hpp) -------------------------------------------------------------------------------- */
byte token[OPS];         /* of the submission */
#define queued 0
#define entered 1
#define withdrawn 2
bool rooted[OPS];        /* the operation, with its lease */
bool leased[OPS];        /* a lease that is ready */
bool has_attempt[OPS];
bool registration_rooted;

/* ---- the arbiter (src/arbitration.cpp, src/retirement.cpp) ------------------------------------------------------ */
bool known[OWNERS], own[OWNERS], claimed[OWNERS], clock[OWNERS], expired[OWNERS], drain[OWNERS], complete[OWNERS];
bool retained[OWNERS], settled[OWNERS];
byte value[OWNERS];
bool fatal, closed, contained;
bool request_due[OWNERS], grace_due[OWNERS];   /* has passed, and nobody has noticed */
bool told_outcome[OWNERS], told_final[OWNERS], told_released[OWNERS];  /* the host */
bool submitted[OPS];

/* ---- the stop (actors/supervisor.cpp) */
byte step;
#define s_running 0
#define s_admission 1
#define s_adapter 2
#define s_lender 3
#define s_arbiter 4
#define s_memory 5
#define s_stopped 6
#define s_refused 7
/* Released; or kept, and said so: by the containment, or by a refused stop that lists an operation without a
 * claim (its exposure was refused, so the backend never had it; only the host's own reading can keep it). */
#define resolved(o) (!submitted[o] || told_released[o] || contained || (step == s_refused && !claimed[o]))

#define request_runs(x) (known[x] && clock[x] && !expired[x] && \
                         !(complete[x] && (!claimed[x] || off_complete_hides_claims)))
#define grace_runs(x) (claimed[x] && drain[x])
#define overdue(x) (request_due[x] || grace_due[x])

inline tell_retained(x, last) {
  if
  :: x == REG || told_final[x] || (value[x] == outcome_none && !off_retained_before_outcome)
  :: else -> assert(told_outcome[x] && !told_released[x]);  /* 7.5: after the outcome, before nothing but release */
             told_final[x] = last
  fi
}

inline decide(x, v) {
  if
  :: value[x] != outcome_none && !off_last_outcome_wins
  :: else -> assert(value[x] == outcome_none || value[x] == v);  /* 1.3: one outcome, never changed */
     value[x] = v;
     if
     :: x == REG
     :: else -> told_outcome[x] = 1;
        if
        :: v == outcome_good -> to_adapter(AR, ar2ad, m_decided_good, x)
        :: else -> to_adapter(AR, ar2ad, m_decided_bad, x)
        fi;
        if :: retained[x] -> tell_retained(x, 0) :: else fi
     fi
  fi
}

inline start_drain(x) {
  if
  :: !own[x] || (drain[x] && !off_drain_restarts)
  :: else -> assert(!drain[x]); drain[x] = 1  /* 4.5: grace is not extended */
  fi
}

inline latch_fatal() {
  fatal = 1;
  for (k : 0 .. OPS) {
    if
    :: known[k] && !settled[k] ->
       if :: k != REG -> decide(k, outcome_bad) :: else fi;
       retained[k] = 1;
       tell_retained(k, 1)
    :: else
    fi
  }
  if :: !off_fatal_untold -> to_adapter(AR, ar2ad, m_fatal, 0) :: else fi;
  if :: !off_fatal_uncontained -> contained = 1 :: else fi
}

/* Commits all that has elapsed (4.2). Requests first: their drain begins at the deadline, so a grace that has
 * passed as well is fatal at once. */
inline advance_clocks() {
  for (i : 0 .. OPS) {
    if
    :: request_due[i] && !fatal ->
       request_due[i] = 0;
       expired[i] = 1;
       if :: !off_timeout_without_outcome -> decide(i, outcome_bad) :: else fi;
       assert(value[i] != outcome_none);  /* 4.3: the timeout answers */
       start_drain(i);
       if :: off_drain_from_notice && grace_due[i] -> assert(!claimed[i]) :: else fi  /* 4.3: at the deadline */
    :: else
    fi
  }
  for (i : 0 .. OPS) {
    if
    :: grace_due[i] && grace_runs(i) && !fatal -> latch_fatal()
    :: else
    fi
  }
  for (i : 0 .. OPS) { request_due[i] = 0; grace_due[i] = 0 };
  i = 0  /* a d_step may not end in a loop */
}

/* What has elapsed before the arbiter acts; `due`: each boundary that may be the next. */
#define request_of(x) !fatal && request_runs(x) && !request_due[x] -> request_due[x] = 1
#define grace_of(x) !fatal && (grace_runs(x) || (request_due[x] && claimed[x])) && !grace_due[x] -> grace_due[x] = 1
#if OPS > 1
#define due :: request_of(0) :: grace_of(0) :: request_of(1) :: grace_of(1) :: grace_of(REG)
#else
#define due :: request_of(0) :: grace_of(0) :: grace_of(REG)
#endif
inline time_passes() { do due :: break od }
inline some_time_passes() { if due fi; time_passes() }
#if OPS > 1
#define clock_runs (!fatal && (request_runs(0) || grace_runs(0) || request_runs(1) || grace_runs(1) || grace_runs(REG)))
#else
#define clock_runs (!fatal && (request_runs(0) || grace_runs(0) || grace_runs(REG)))
#endif

inline arbiter_commit(x, v) {
  if
  :: !known[x] || (value[x] != outcome_none && !off_last_outcome_wins)
  :: else ->
     assert(!request_due[x]);  /* 4.2: a timeout that has elapsed comes first */
     decide(x, v);
     if
     :: v == outcome_good -> complete[x] = 1
     :: else -> if :: !off_failure_without_drain -> start_drain(x) :: else fi;
                assert(!own[x] || drain[x])  /* 4.4 */
     fi
  fi
}

inline arbiter_handles() {
  ad2ar?m,w;
  if
  :: (m == m_settle && off_skip_elapsed) || (m == m_commit_good && off_commit_skips_elapsed)
  :: else -> advance_clocks()
  fi;
  if
  :: m == m_track ->
     if
     :: fatal || closed -> to_adapter(AR, ar2ad, m_refused, REG)
     :: else -> known[REG] = 1; own[REG] = 1; to_adapter(AR, ar2ad, m_granted, REG)
     fi
  :: m == m_expose ->
     known[w] = 1;
     if
     :: (!fatal || off_fatal_admits) && (!closed || off_shutdown_admits) ->
        assert(!fatal && !closed);  /* 4.1, 4.10 */
        own[w] = 1;
        claimed[w] = !off_expose_without_claim;
        clock[w] = !off_expose_without_clock;
        to_adapter(AR, ar2ad, m_granted, w)
     :: else ->
        to_adapter(AR, ar2ad, m_refused, w);
        decide(w, outcome_bad);
        if :: fatal -> tell_retained(w, 1) :: else fi
     fi
  :: m == m_commit_good -> arbiter_commit(w, outcome_good)
  :: m == m_commit_bad -> arbiter_commit(w, outcome_bad)
  :: m == m_retain && known[w] ->
     retained[w] = 1;
     settled[w] = 0;
     if :: !off_dispute_without_clock -> start_drain(w) :: else fi;
     assert(drain[w] || !own[w]);  /* 4.7: a disputed claim is under the clock */
     if :: own[w] -> claimed[w] = 1 :: else fi;
     tell_retained(w, 0)
  :: m == m_settle && known[w] ->
     if
     :: !fatal || off_settle_after_fatal || (off_fatal_of_one_owner && !grace_runs(w)) ->
        assert(!fatal);  /* 4.5: fatal covers the runtime, and is final */
        for (i : 0 .. OPS) { assert(!overdue(i)) }  /* 4.2 */
        claimed[w] = 0;
        settled[w] = 1;
        to_adapter(AR, ar2ad, m_settled, w)
     :: else -> settled[w] = 0; to_adapter(AR, ar2ad, m_not_settled, w)
     fi
  :: m == m_retired && known[w] ->
     if :: w != REG -> assert(told_outcome[w]); told_released[w] = 1 :: else fi;
     if
     :: !fatal && !claimed[w] -> own[w] = 0; drain[w] = 0; clock[w] = 0; expired[w] = 0; complete[w] = 0
     :: else
     fi;
     known[w] = 0; settled[w] = 0; retained[w] = 0; value[w] = 0; told_outcome[w] = 0; told_final[w] = 0
  :: else  /* of no operation here: counted */
  fi
}

proctype arbiter() {
  do
#if LATE
  :: atomic { nempty(ad2ar) -> time_passes(); d_step { arbiter_handles() } }
#else
  :: d_step { nempty(ad2ar) -> arbiter_handles() }
#endif
  :: atomic { up(AR) && clock_runs -> some_time_passes(); d_step { advance_clocks() } }
  :: d_step {
       dead == AD && !ar_told && !off_adapter_death_ignored -> ar_told = 1;
       for (w : 0 .. OPS) {
         if
         :: known[w] ->
            if :: w != REG -> decide(w, outcome_bad) :: else fi;
            retained[w] = 1;
            settled[w] = 0;
            start_drain(w);
            if :: own[w] -> claimed[w] = 1 :: else fi;
            tell_retained(w, 0)
         :: else
         fi
       };
       w = 0
     }
  od
}

/* ---- the lender (src/lending.cpp, actors/lender.cpp) ----------------------------------------------------------- */
#define l_none 0
#define l_waiting 1
#define l_copying_in 2   /* a publish: pages to slots */
#define l_ready 3
#define l_copying_out 4  /* a fetch: marked slots to pages */
#define l_guarded 5
#define l_finished 6
#define l_unproven 7     /* quarantined for good */
#define l_gone 8
byte phase[OPS];
bool doomed[OPS];
byte line;               /* the head of the line, + 1 */
byte free_slots = SLOTS;
byte quarantined;
bool hold, parts_registered, shut;

#define holds_slot(x) (phase[x] >= l_copying_in && phase[x] <= l_finished)
#if OPS > 1
#define lent (holds_slot(0) + holds_slot(1))
#else
#define lent (holds_slot(0))
#endif

/* Strictly first come, first served. */
inline serve() {
  do
  :: line != 0 && free_slots > 0 ->
     w = line - 1;
     line = 0;
#if OPS > 1
     if :: phase[1 - w] == l_waiting -> line = 2 - w :: else fi;
#endif
     free_slots--;
     assert(quiet(w));
     if
     :: way[w] == way_fetch -> phase[w] = l_ready; leased[w] = 1
     :: else -> phase[w] = l_copying_in; local_touch[w] = 1;
                if :: off_publish_before_copy -> leased[w] = 1 :: else fi
     fi
  :: else -> break
  od
}

/* A slot comes back: it is painted, and the next lease in the line has it. */
inline free_slot(x) {
  assert(quiet(x));  /* 1.2: nobody may touch it any more */
  guard[x] = 0;
  phase[x] = l_gone;
  free_slots++;
  serve()
}

inline conserve() { assert(lent + free_slots + quarantined == SLOTS) }  /* 7.10 */

inline end_copies(x) {
  if
  :: guard[x] == 1 && !off_ignore_read_guards -> phase[x] = l_guarded
  :: else -> phase[x] = l_finished; to_adapter(LE, le2ad, m_copies_ended, x)
  fi
}

/* A copy's end can't be had: the slot is out of use for good. */
inline lose_copy(x) {
  if
  :: off_lost_copy_frees ->
     if :: way[x] == way_fetch -> end_copies(x) :: else -> free_slot(x) fi
  :: else ->
     phase[x] = l_unproven;
     quarantined++;
     if :: way[x] == way_fetch -> to_adapter(LE, le2ad, m_copies_lost, x) :: else fi
  fi
}

/* Nothing is lent any more. */
inline fail_waiting() {
  line = 0;
  for (i : 0 .. OPS - 1) { if :: phase[i] == l_waiting -> phase[i] = l_gone :: else fi }
}

inline copy_completes(x) {
  local_touch[x] = 0;
  if
  :: !up(LE)
  :: up(LE) && phase[x] == l_copying_out -> end_copies(x)
  :: up(LE) && phase[x] == l_copying_in ->
     if
     :: doomed[x] -> free_slot(x)
     :: else -> phase[x] = l_ready; leased[x] = 1
     fi
  :: else
  fi
}

/* `kept`: the request still holds the page that was lent, so it is pinned and the copy queued (6.4). */
inline lender_handles(kept) {
  ad2le?m,w;
  if
  :: m == m_hold -> hold = 1; to_adapter(LE, le2ad, m_held, REG)
  :: m == m_release_hold -> assert(!live); hold = 0  /* 5.8: the hold goes last */
  :: m == m_parts_registered -> parts_registered = 1
  :: m == m_finish && phase[w] == l_ready -> end_copies(w)
  :: m == m_finish_marking && phase[w] == l_ready ->
     if
     :: !kept -> end_copies(w)
     :: kept && le_told && dead == DV -> lose_copy(w)
     :: else -> phase[w] = l_copying_out; local_touch[w] = 1
     fi
  :: m == m_return ->
     assert(phase[w] == l_finished || off_release_at_outcome || off_settle_before_copies);  /* 6.5: after copies */
     free_slot(w)
  :: else
  fi;
  conserve()
}

proctype lender() {
  do
  :: d_step { nempty(ad2le) -> lender_handles(true) }
  :: d_step { ad2le?[m_finish_marking,_] -> lender_handles(false) }
  :: d_step {  /* what was being copied can't be proven complete any more */
       dead == DV && !le_told && !off_cuda_death_ignored -> le_told = 1;
       for (i : 0 .. OPS - 1) {
         if :: phase[i] == l_copying_in || phase[i] == l_copying_out -> lose_copy(i) :: else fi
       }
       fail_waiting();
       conserve()
     }
  od
}

/* ---- the adapter: operations (actors/adapter.cpp; their transitions are generated) ----------------------------- */
bool open[OPS], owned[OPS];
byte job[OPS];           /* the submission's */
#define job_none 0
#define job_posted 1
#define job_in_call 2
#define job_awaited 3    /* the attempt exists, its outcome has not come */
bool asked[OPS];         /* the collector is to get a proof */
bool sent_good[OPS], sent_bad[OPS];
bool cancel_asked[OPS], lender_is_down[OPS];
bool cancelled[OPS], retried[OPS];  /* by the host */
bool collected[OPS];
bool fatal_known;
#define knows_down(x) (ad_told && dead == (x))  /* the adapter has been told */

inline do_reject(o) { skip }
inline do_start_backend(o) {
  assert(outcome[o] == outcome_none);  /* 5.3 */
  if
  :: knows_down(BE) -> on_backend_down_withdrawn(o)
  :: else -> if :: up(BE) -> job[o] = job_posted :: else fi
  fi
}
inline do_withdraw_submission(o) {
  if :: token[o] == queued -> token[o] = withdrawn; on_withdrawn(o) :: else fi
}
/* A second commit of the same value would be refused at the arbiter. */
inline do_commit_good(o) { if :: sent_good[o] :: else -> sent_good[o] = 1; to_arbiter(m_commit_good, o) fi }
inline do_commit_bad(o) { if :: sent_bad[o] :: else -> sent_bad[o] = 1; to_arbiter(m_commit_bad, o) fi }
inline do_collect_proof(o) {
  assert(!asked[o] && (!collected[o] || retried[o]));  /* 5.4: one in flight; another one only if asked for */
  collected[o] = 1;
  if
  :: knows_down(CO) -> on_collector_down(o)
  :: else -> if :: up(CO) -> asked[o] = 1 :: else fi
  fi
}
inline do_request_cancel(o) {
  assert(outcome[o] != outcome_none && !cancel_asked[o]);  /* 5.5: after the outcome, once */
  cancel_asked[o] = 1
}
inline do_finish(o, kind) {
  assert(!fatal_known);  /* 4.5: after fatal nothing moves */
  if
  :: knows_down(LE) -> lender_is_down[o] = 1  /* applied as the adapter's next step */
  :: else -> to_lender(kind, o)
  fi
}
inline do_finish_lease(o) { do_finish(o, m_finish) }
inline do_finish_lease_marking(o) {
  assert(outcome[o] == outcome_good);  /* 5.6: only what was served is marked */
  do_finish(o, m_finish_marking)
}
inline do_awaiting_proof(o) { skip }
inline do_retain(o) { to_arbiter(m_retain, o) }
inline do_settle(o) { to_arbiter(m_settle, o) }
inline do_release(o) {
  assert(settled[o]);  /* 7.3: against the arbiter's token alone */
  rooted[o] = 0; leased[o] = 0; token[o] = withdrawn;  /* a worker that comes now finds nothing */
  to_lender(m_return, o);
  to_arbiter(m_retired, o);
  forget(o)
}
/* The operation is over: its state is as before. */
inline forget(o) {
  open[o] = 0; access[o] = 0; copies[o] = 0; claim[o] = 0; outcome[o] = 0; proof[o] = 0;
  attempt[o] = 0; cancel_sent[o] = 0; reported[o] = 0; sent_good[o] = 0; sent_bad[o] = 0; lender_is_down[o] = 0;
  cancel_asked[o] = 0; cancelled[o] = 0; retried[o] = 0; collected[o] = 0; has_attempt[o] = 0
}

/* ---- the adapter: registrations (src/registrar.cpp) ------------------------------------------------------------ */
#define r_idle 0
#define r_holding 1
#define r_registering 2
#define r_registered 3
#define r_failed 4
#define r_stopping 5
#define r_settling 6
#define r_closed 7
byte r_phase;
bool r_live, r_hold_asked, r_hold, r_retained, start_answered;
byte r_flight, r_job;
#define r_opening 1
#define r_closing 2
#define accepting (r_phase == r_registered || (r_phase == r_registering && off_submit_unregistered))

inline fail_start() {
  if
  :: r_phase == r_registering || r_phase == r_holding ->
     if :: off_failed_registration_admits -> r_phase = r_registered; to_lender(m_parts_registered, REG)
     :: else -> r_phase = r_failed
     fi
  :: else
  fi;
  start_answered = 1;
  if :: r_retained :: else -> r_retained = 1; to_arbiter(m_retain, REG) fi
}
inline register_next() {
  r_phase = r_registering;
  if
  :: knows_down(BE) || fatal_known -> fail_start()
  :: else -> r_flight = r_opening; if :: up(BE) -> r_job = r_opening :: else fi
  fi
}
inline close_next() {
  if
  :: r_phase != r_stopping || r_flight != 0 || r_hold_asked || (fatal_known && !off_teardown_after_fatal)
  :: else ->
     assert(!fatal_known);  /* 5.8: after fatal nothing is torn down */
     if
     :: r_live && knows_down(BE)
     :: r_live && !knows_down(BE) -> r_flight = r_closing;
        if :: up(BE) -> r_job = r_closing :: else fi;
        if :: off_hold_released_early -> to_lender(m_release_hold, REG) :: else fi
     :: else -> r_phase = r_settling; to_arbiter(m_settle, REG)
     fi
  fi
}
inline registrar_handles() {
  if
  :: m == m_granted ->
     if
     :: r_phase != r_idle -> to_arbiter(m_retired, REG); start_answered = 1
     :: else -> r_phase = r_holding;
        if :: knows_down(LE) -> fail_start() :: else -> r_hold_asked = 1; to_lender(m_hold, REG) fi
     fi
  :: m == m_refused -> start_answered = 1; if :: r_phase == r_idle -> r_phase = r_closed :: else fi
  :: m == m_held ->
     r_hold_asked = 0;
     r_hold = 1;
     if
     :: r_phase == r_holding -> register_next()
     :: r_phase == r_stopping -> start_answered = 1
     :: else
     fi
  :: m == m_settled && r_phase == r_settling ->
     r_phase = r_closed;
     if :: r_hold -> to_lender(m_release_hold, REG) :: else fi;
     to_arbiter(m_retired, REG)
  :: else
  fi
}
inline registered() {
  r_flight = 0;
  r_live = 1;
  start_answered = 1;
  if :: r_phase == r_registering -> r_phase = r_registered; to_lender(m_parts_registered, REG) :: else fi
}
inline not_registered() { r_flight = 0; fail_start() }
inline revoked() { r_flight = 0; r_live = 0; close_next() }
inline not_revoked() { if :: off_failed_close_counts -> revoked() :: else -> r_flight = 0 fi }
inline registrar_stops() {
  if
  :: r_phase == r_idle -> r_phase = r_closed
  :: r_phase == r_closed || r_phase == r_settling
  :: else ->
     if :: !off_close_keeps_admission -> r_phase = r_stopping :: else fi;
     if :: r_retained :: else -> r_retained = 1; to_arbiter(m_retain, REG) fi
  fi
}

inline adapter_is_fatal() {
  fatal_known = 1;
  for (i : 0 .. OPS - 1) { if :: open[i] -> on_fatal(i) :: else fi };
  start_answered = 1
}

inline backend_down(o) {
  if
  :: !open[o]
  :: open[o] && access[o] == access_queued && token[o] == queued ->
     token[o] = withdrawn;
     d_step { on_backend_down_withdrawn(o) }
  :: open[o] && !(access[o] == access_queued && token[o] == queued) && has_attempt[o] ->
     d_step { on_backend_down_rooted(o) }
  :: else -> d_step { on_backend_down(o) }
  fi
}
#define when_adapter(handles) if :: up(AD) -> handles :: else fi
#define when_open(event, o) if :: open[o] -> d_step { event(o) } :: else fi
#if OPS > 1
#define for_each_open(event) when_open(event, 0); when_open(event, 1)
#else
#define for_each_open(event) when_open(event, 0)
#endif

byte am, aw;  /* what is being received */
inline take() { m = am; w = aw; am = 0; aw = 0 }

proctype adapter() {
  do
  :: atomic {
       if
       :: ar2ad?am,aw
       :: le2ad?am,aw
       fi;
       if
       :: am == m_fatal -> d_step { take(); adapter_is_fatal() }
       :: am != m_fatal && aw == REG -> d_step { take(); registrar_handles() }
       :: am != m_fatal && aw != REG && !open[aw] -> d_step { take() }  /* late: counted */
       :: else ->
          if
          :: am == m_granted -> d_step { take(); on_granted(w) }
          :: am == m_refused -> d_step { take(); on_refused(w) }
          :: am == m_decided_good -> d_step { take(); on_decided_good(w) }
          :: am == m_decided_bad -> d_step { take(); on_decided_bad(w) }
          :: am == m_settled -> d_step { take(); on_authorised(w) }
          :: am == m_not_settled -> d_step { take(); on_not_authorised(w) }
          :: am == m_copies_ended -> d_step { take(); on_copies_ended(w) }
          :: am == m_copies_lost -> d_step { take(); on_copies_unproven(w) }
          fi
       fi
     }
  :: atomic {
       up(AD) && dead != NOBODY && !ad_told -> ad_told = 1;
       if
       :: dead == AR && !off_arbiter_death_ignored -> d_step { adapter_is_fatal() }
       :: dead == BE && !off_backend_death_ignored -> backend_down(0);
#if OPS > 1
          backend_down(1);
#endif
          if :: r_flight == r_opening -> d_step { fail_start() } :: else fi
       :: dead == CO && !off_collector_death_ignored ->
          for_each_open(on_collector_down)
       :: dead == LE && !off_lender_death_ignored ->
          for_each_open(on_lender_down);
          if
          :: r_hold_asked -> d_step {
               r_hold_asked = 0;
               if :: r_phase == r_stopping -> start_answered = 1 :: else -> fail_start() fi
             }
          :: else
          fi
       :: else
       fi
     }
  :: d_step {
       lender_is_down[0] -> lender_is_down[0] = 0; on_lender_down(0)
     }
#if OPS > 1
  :: d_step {
       lender_is_down[1] -> lender_is_down[1] = 0; on_lender_down(1)
     }
#endif
  od
}

/* ---- the world of one operation --------------------------------------------------------------------------------- */

#define if_open(event) if :: open[o] && up(AD) -> event(o) :: else fi
#define answer(o, event) asked[o] = 0; if_open(event)

/* When the actors have nothing left to do, whatever the world does not do, each operation is released, or kept with
 * the containment told. With no cycle among the actors' own steps (tools/check-model, liveness) that is: always,
 * at last. */
#define at_rest (empty(ar2ad) && empty(ad2ar) && empty(ad2le) && empty(le2ad) && \
                 !(up(AR) && clock_runs) && (dead == NOBODY || (ad_told || dead == AD) && (su_told || dead != AR) && \
                 (ar_told || dead != AD || off_adapter_death_ignored) && \
                 (le_told || dead != DV || off_cuda_death_ignored)) && !lender_is_down[0] && !lender_is_down[OPS - 1] && \
                 (step == s_running || step >= s_stopped))

proctype world(byte o) {
  do
  /* the host */
  :: d_step {
       (QUEUE || o == 0) && phase[o] == l_none && up(LE) && parts_registered && !shut && !le_told ->
       phase[o] = l_waiting;
       if :: line == 0 -> line = o + 1 :: else fi;
#if OPS > 1 && !QUEUE
       phase[1] = l_waiting;
#endif
       serve();
       conserve()
     }
  :: d_step {  /* gives the lease up, or its request ends */
       up(LE) && (QUEUE && phase[o] == l_waiting || phase[o] == l_copying_in && !doomed[o] ||
                  phase[o] == l_ready && (!owned[o] || off_owned_lease_withdrawn) && guard[o] != 1) ->
       if
       :: phase[o] == l_waiting ->
          phase[o] = l_gone;
          if
          :: line == o + 1 -> line = 0;
#if OPS > 1
             if :: phase[1 - o] == l_waiting -> line = 2 - o :: else fi
#endif
          :: else
          fi;
          serve()
       :: phase[o] == l_copying_in -> doomed[o] = 1
       :: else -> leased[o] = 0; free_slot(o)
       fi;
       conserve()
     }
  :: d_step { o < GUARDS && phase[o] == l_ready && leased[o] && guard[o] == 0 -> guard[o] = 1 }
  :: d_step { guard[o] == 1 -> guard[o] = 2; if :: phase[o] == l_guarded && up(LE) -> end_copies(o) :: else fi }
  :: d_step {
       up(AD) && leased[o] && !owned[o] && accepting && !fatal_known && (!ad_told || dead == DV) ->
       owned[o] = 1;
       rooted[o] = 1;
       open[o] = 1;
       submitted[o] = 1;
       to_arbiter(m_expose, o)
     }
  :: d_step { up(AD) && open[o] && !cancelled[o] -> cancelled[o] = 1; on_cancel(o) }
  :: d_step {
       up(AR) && ar_told && known[o] && !cancelled[o] && empty(ad2ar) -> cancelled[o] = 1;
       advance_clocks();
       arbiter_commit(o, outcome_bad)
     }
  :: d_step {
       o < RETRIES && up(AD) && open[o] && !retried[o] && (access[o] == access_disputed || proof[o] == proof_in_flight) ->
       retried[o] = 1;
       on_retry_proof(o)
     }
  /* the provider, on a worker (actors/backend.cpp, submit_job) */
  :: d_step {
       job[o] == job_posted ->
       if
       :: (rooted[o] && token[o] == queued) || off_withdrawn_is_called ->
          token[o] = entered;
          job[o] = job_in_call;
          touch[o] = 1;
          assert(claimed[o] && (phase[o] == l_ready || !up(LE)));  /* 4.1: retained before anything can escape */
          assert(live && !local_touch[o] && !freed)                    /* 5.2, 5.7: registered, copied, mapped */
       :: else -> job[o] = job_none
       fi
     }
  :: d_step { job[o] == job_in_call -> touch[o] = 0; job[o] = job_none; if_open(on_rejected) }
  :: d_step { job[o] == job_in_call -> job[o] = job_awaited; has_attempt[o] = 1; if_open(on_accepted) }
  :: d_step {
       job[o] == job_in_call -> job[o] = job_none;
       if :: off_escaped_is_rejected -> if_open(on_rejected) :: else -> if_open(on_escaped) fi
     }
  :: d_step { job[o] == job_awaited -> job[o] = job_none; if_open(on_reported_good) }
  :: d_step { job[o] == job_awaited -> job[o] = job_none; if_open(on_reported_bad) }
  :: d_step {
       job[o] == job_awaited -> job[o] = job_none;
       if_open(on_reported_foreign);
       assert(!sent_good[o])  /* 3.5: what was not asked for is no delivery */
     }
  /* the proof collector, and what the provider answers it (actors/proof_collector.cpp) */
  :: d_step { asked[o] -> touch[o] = 0; answer(o, on_access_ended) }
#if OPS > 1
  :: d_step { off_one_answer_for_all && asked[o] && asked[1 - o] -> answer(o, on_access_ended) }
#endif
  :: d_step {
       asked[o] ->
       if :: off_unproven_is_end -> answer(o, on_access_ended) :: else -> answer(o, on_access_unproven) fi
     }
#ifdef LIVENESS
  :: asked[o] -> skip  /* running still */
#endif
  /* evidence of another generation, or of another runtime, that says what it likes (7.1) */
  :: d_step { open[o] && up(AD) -> on_access_ended_stale(o) }
  /* the device */
  :: d_step { local_touch[o] && up(DV) -> copy_completes(o); conserve() }
  :: d_step {
       local_touch[o] && up(DV) && up(LE) && (phase[o] == l_copying_in || phase[o] == l_copying_out) ->
       if
       :: off_failed_record_is_complete -> local_touch[o] = 0; copy_completes(o); local_touch[o] = 1
       :: else -> lose_copy(o)
       fi;
       conserve()
     }
#ifndef LIVENESS  /* which says the same of every fair run */
  :: d_step { at_rest && submitted[o] -> assert(resolved(o)) }  /* 1.2, 4.5: every operation ends */
#endif
  od
}

/* ---- the supervisor, deaths, and the registration's worker ---------------------------------------------------- */
inline drop(messages) { do :: len(messages) > 0 -> messages?_,_ :: len(messages) == 0 -> break od }

/* States that must be reached, or the rest would say little (runs of the kind `reached`). */
#define stopped_after_release (step == s_stopped && told_released[0])
#define both_released (told_released[0] && told_released[OPS - 1])
#define released_after_death (ad_told && told_released[0])
#define settled_by_retry (retried[0] && settled[0] && known[0])
#define waits_for_reader (phase[0] == l_guarded && claim[0] == claim_held)
#define fatal_after_release (fatal && told_released[0] && told_final[OPS - 1])

proctype supervisor() {
  do
#ifdef REACHED
  :: d_step { REACHED -> assert(false) }  /* reached */
#endif
  :: d_step { at_rest && r_job == 0 && up(AD) -> assert(start_answered || contained) }  /* 5.1: start is answered */
#if DEATHS
  :: atomic {
       dead == NOBODY ->
       if
       :: d_step { dead = AD; drop(ar2ad); drop(le2ad);
                   r_phase = 0; r_live = 0; r_hold_asked = 0; r_hold = 0; r_retained = 0; r_flight = 0;
                   for (i : 0 .. OPS - 1) { forget(i) }; i = 0 }
       :: d_step { dead = AR; drop(ad2ar); i = 0 }
       :: dead = BE
       :: d_step { dead = CO; for (i : 0 .. OPS - 1) { asked[i] = 0 }; i = 0 }
       :: d_step { dead = LE; drop(ad2le); i = 0 }
       :: dead = DV
       fi
     }
  :: d_step {
       dead == AR && !su_told -> su_told = 1;
       if :: !off_arbiter_death_uncontained -> contained = 1 :: else fi
     }
#endif
  /* the registration, on a worker */
  :: atomic {
       r_job == r_opening -> r_job = 0;
       if
       :: d_step { live = 1; registration_rooted = 1; when_adapter(registered()) }
       :: d_step { when_adapter(not_registered()) }
       fi
     }
  :: atomic {
       r_job == r_closing -> r_job = 0;
       if
       :: d_step {
            for (i : 0 .. OPS - 1) { assert(quiet(i) || !owned[i] && !touch[i]) }  /* 1.2: on proof alone */
            live = 0; registration_rooted = 0; when_adapter(revoked())
          }
       :: d_step { when_adapter(not_revoked()) }
       fi
     }
#if STOP
  :: d_step {
       step == s_running || step == s_admission -> step = s_admission;
       if
       :: up(AR) ->
          advance_clocks();
          closed = 1;
          for (i : 0 .. OPS) {
            if :: !off_shutdown_without_drain -> start_drain(i) :: else fi;
            assert(!own[i] || drain[i])  /* 4.10 */
          };
          step = s_adapter
       :: else
       fi
     }
  :: d_step {
       step == s_adapter && up(AD) && nfull(ad2ar) ->
       registrar_stops();
       for (i : 0 .. OPS - 1) { if :: open[i] -> on_cancel(i) :: else fi }
       if
#if OPS > 1
       :: (open[0] || open[1]) && !off_deregister_early
#else
       :: open[0] && !off_deregister_early
#endif
       :: else -> close_next()
       fi;
       if :: r_phase == r_closed -> step = s_lender :: else fi
     }
  :: d_step {
       step == s_lender && up(LE) ->
       shut = 1;
       fail_waiting();
       if
       :: lent == 0 && quarantined == 0 && !hold -> step = s_arbiter
       :: else
       fi
     }
  :: d_step {
       step == s_arbiter && up(AR) ->
       advance_clocks();
       if
#if OPS > 1
       :: !fatal && !own[0] && !own[1] && !own[REG] -> step = s_memory
#else
       :: !fatal && !own[0] && !own[REG] -> step = s_memory
#endif
       :: else
       fi
     }
  :: d_step {
       step == s_memory ->
       if
#if OPS > 1
       :: !registration_rooted && !rooted[0] && !leased[0] && !rooted[1] && !leased[1] ->
#else
       :: !registration_rooted && !rooted[0] && !leased[0] ->
#endif
          freed = 1;
          step = s_stopped;
          for (i : 0 .. OPS - 1) { assert(quiet(i)) }
          assert(!live)  /* 6.7: what is not proven stays mapped */
       :: else
       fi
     }
  :: d_step { step != s_running && step < s_stopped -> step = s_refused }
#endif
  od
}

init {
  d_step {
    way[0] = WAY_OF_0;
#if OPS > 1
    way[1] = WAY_OF_1;
#endif
    ad2ar!m_track,REG
  };
  atomic {
    run adapter(); run arbiter(); run lender(); run supervisor(); run world(0);
#if OPS > 1
    run world(1);
#endif
  }
}

#ifdef LIVENESS
ltl every_operation_ends { [] (submitted[0] -> <> (told_released[0] || contained)) }
#endif
