import numpy as np
import pytest

from millrace_research.arena.simulation.trace_files import TraceFileError, read_trace


def written(folder, text):
    file = folder / "mine.csv"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    "text",
    [
        "timestamp,value\n100,5\n110,7\n130,0\n",
        "\ufefftimestamp,value\n100,5\n110,7\n130,0\n",
        "100,5\n110,7\n130,0\n",
        "timestamp|value\n100|5\n110|7\n130|0\n",
        "100;5\r\n\r\n110;7\r\n130;0\r\n",
        "host\ttime\trequests\na\t100\t5\nb\t110\t7\nb\t130\t0\n",
        "load,date\n5,1970-01-01T00:01:40Z\n7,1970-01-01T00:01:50Z\n0,1970-01-01 00:02:10\n",
        "when,load\n100.0,5.0\n110.0,7.0\n1.3e2,0\n",
        "rate,when\n5,100\n7,110\n0,130\n",
    ],
)
def test_a_trace_is_read_from_a_file_of_rates(tmp_path, text):
    trace = read_trace(written(tmp_path, text))
    assert trace.name == "mine"
    assert trace.times.tolist() == [0, 10, 30]
    assert trace.rates.tolist() == [5, 7, 0]


@pytest.mark.parametrize("header", ["", "time\n", "Timestamp,bytes,url\n"])
def test_a_trace_is_counted_from_a_file_of_events(tmp_path, header):
    rest = ",300,/a,b" if header.count(",") == 3 else ",300,/a" if "," in header else ""
    moments = np.concatenate((np.arange(0, 100, 0.1), np.arange(100, 200, 0.02)))
    lines = "".join(f"{1e9 + moment}{rest}\n" for moment in moments[::-1])
    trace = read_trace(written(tmp_path, header + lines))
    assert trace.records == pytest.approx(len(moments), rel=0.02)
    assert trace.rate(50) == pytest.approx(10, rel=0.2)
    assert trace.rate(150) == pytest.approx(50, rel=0.2)


def test_two_rates_at_one_time_are_a_jump(tmp_path):
    trace = read_trace(written(tmp_path, "0,1\n10,1\n10,5\n20,5\n"))
    assert trace.rate(9) == 1
    assert trace.rate(10) == 5


@pytest.mark.parametrize(
    ("text", "line", "value", "problem"),
    [
        ("", None, None, "the file is empty"),
        ("time,value\n", None, None, "no line after the header"),
        ("time,value\n1,2\n", None, None, "two times or more"),
        ("time\n5\n5\n", None, None, "all records arrive at one time"),
        ("time,load,region\n1,2,a\n2,3,a\n3,9,a\n", None, None, "the lines are samples"),
        ('time,value\n1,2\n2,"3\n', 3, None, "not a line of a CSV file"),
        ("time,value\n1,2\n2,1e300\n", 3, "1e300", "15 at most"),
        ("time,value\n1,2\n2,many\n", 3, "many", "write a number of records per second"),
        ("time,value\n1,2\n2,-1\n", 3, "-1", "a rate is 0 or more"),
        ("time,value\n1,2\n2,nan\n", 3, "nan", "a rate is 0 or more"),
        ("time,value\n1,2\nsoon,3\n", 3, "soon", "not a time"),
        ("time,value\n1,2\nnan,3\n", 3, "nan", "not a time"),
        ("time,value\n1,2\n\n3,3\n2,4\n", 5, "2", "this is before the line above"),
        ("time,value\n1714550400000,2\n1714550401000,3\n", 2, "1714550400000", "divide milliseconds by 1000"),
        ("time,value\n1,2\n2\n", 3, "2", "2 columns are needed"),
        ("host,url,load\na,b,3\n", 1, "host, url, load", "name the column of times"),
        ("value\n5\n7\n", 1, "value", "name the column of times"),
        ("1,2,3\n", 1, "1, 2, 3", "without a header"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path, text, line, value, problem):
    file = written(tmp_path, text)
    with pytest.raises(TraceFileError, match=problem) as caught:
        read_trace(file)
    assert (caught.value.file, caught.value.line, caught.value.value) == (file, line, value)
    assert str(file) in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path):
    file = tmp_path / "trace.parquet"
    file.write_bytes(b"PAR1\xff\xfe\x00")
    with pytest.raises(TraceFileError, match="not UTF-8 text"):
        read_trace(file)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "duration", "mean", "peak_over_mean"),
    [
        ("demeter_dsp_rates/ADS_3D_1S_4_sub_30K_max.csv", 64_799, 14_256, 2.05),
        ("demeter_dsp_rates/CARS_3D_1S_4_sub_35K_max.csv", 64_802, 18_361, 2.05),
        ("dsp_load_rates/google_5min.csv", 1_814_400, 112_025, 1.96),
        ("nab_rates/elb_request_count_8c0756.csv", 1_211_700, 61.8, 10.6),
        ("nab_rates/Twitter_volume_KO.csv", 4_755_000, 11.4, 197),
        ("azure_llm_2023/AzureLLMInferenceTrace_code.csv", 3_436, 2.57, 14.1),
        ("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", 3_502, 5.53, 2.13),
        ("nasa_http_19950801/nasa_19950801.tsv", 46_321, 0.669, 3.9),
    ],
)
def test_real_traces_have_their_length_mean_and_peak(data, name, duration, mean, peak_over_mean):
    trace = read_trace(data(name))
    assert trace.duration == pytest.approx(duration, abs=1)
    assert trace.mean == pytest.approx(mean, rel=0.01)
    assert trace.peak / trace.mean == pytest.approx(peak_over_mean, rel=0.02)
