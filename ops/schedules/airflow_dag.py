"""An Airflow DAG of the nightly jobs: one task per job, in order, even after a failure, and a last task that fails if any job did.

Knows no job: every task is a command, on a worker that has `iothub[spark]`, Java 17 and the hub's configuration. Airflow 3.
Copy it into the folder of your DAGs and change the constants.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

PROGRAM = "/opt/iothub/bin/iothub"
DATA_DIR = "/var/lib/iothub"
JOBS = ("compact_events", "usage", "archive", "insights")

with DAG(
    dag_id="iothub_jobs",
    description="iothub: compaction of the session log, usage, archive, insights",
    schedule="30 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,  # a run does what all missed ones would have done
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(minutes=10), "execution_timeout": timedelta(hours=7)},
    tags=["iothub"],
) as dag:
    tasks: list[BashOperator] = []
    for job in JOBS:
        task = BashOperator(
            task_id=job,
            # `exec`: Airflow's SIGTERM reaches the command, which stops Spark and saves the run as "interrupted".
            bash_command=f"exec {PROGRAM} --data-dir {DATA_DIR} --no-input job run {job} --wait 2h -o jsonl",
            trigger_rule="all_done",
            append_env=True,
        )
        if tasks:
            tasks[-1] >> task
        tasks.append(task)
    # Airflow judges a run by its last task: this one needs every job, so that a success of `insights` hides no failure.
    tasks >> EmptyOperator(task_id="whole_night")
