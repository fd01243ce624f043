-- How many starts a claim may note: never more than the rate, whatever it is called with. array_fill took the number as
-- it came: a negative one or null was an error of the server's, a large one a gigabyte of its memory.

create or replace function public.marian_jobs_count_starts(p_type text, p_count integer, p_now timestamptz)
returns void
language sql
set search_path = ''
as $$
  update public.marian_job_limits l
     set started = array(select s from unnest(l.started) s where s > p_now - l.per)
                   || array_fill(p_now, array[least(greatest(coalesce(p_count, 0), 0), l.rate)])
   where l.type = p_type and l.rate is not null
$$;
