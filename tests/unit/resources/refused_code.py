"""Cases of ``refused.REFUSED`` about own code."""


def _code(uri):
    return {"uri": uri, "sha256": "0" * 64}


def _in_config_map(name):
    return {"configMap": {"name": name, "key": "fares.py"}, "sha256": "0" * 64}


CODE = [
    (
        "code",
        {"code": ["https://code.example.com/streams/**", "s3a://code/cabs/**"]},
        {
            "code": [
                _code("https://code.example.com/streams/routes-1.0-py3-none-any.whl"),
                _code("s3a://code/cabs/a.jar"),
            ]
        },
        {"code": [_code("s3a://code/cabs/a.jar"), _code("https://code.example.com.evil.com/streams/a.jar")]},
        'spec.code[1].uri: "https://code.example.com.evil.com/streams/a.jar" is not allowed in namespace cabs; '
        "write a value that matches one of https://code.example.com/streams/**, s3a://code/cabs/**",
    ),
    (
        "code",
        {},
        {},
        {"code": [_code("s3a://code/cabs/a.jar")]},
        'spec.code[0].uri: "s3a://code/cabs/a.jar" is not allowed in namespace cabs; leave it out: the policy allows none',
    ),
    (
        "code",
        {"code": ["s3a://code/**"]},
        {},
        {"code": [_code("file:///opt/a.jar")]},
        'spec.code[0].uri: "file:///opt/a.jar" is not allowed in namespace cabs',
    ),
    (
        "codeConfigMaps",
        {"codeConfigMaps": ["fares-*"]},
        {"code": [_in_config_map("fares-1")]},
        {"code": [_in_config_map("fares-1"), _in_config_map("evil-1")]},
        'spec.code[1].configMap.name: "evil-1" is not allowed in namespace cabs; write a value that matches one of fares-*',
    ),
    (
        "codeConfigMaps",
        {"code": ["s3a://code/**"]},
        {"code": [_code("s3a://code/fares.py")]},
        {"code": [_in_config_map("fares-1")]},
        'spec.code[0].configMap.name: "fares-1" is not allowed in namespace cabs; leave it out: the policy allows none',
    ),
    (
        "s3Endpoints",
        {"code": ["s3a://code/**"], "s3Endpoints": ["https://minio.example.com"]},
        {"code": [_code("s3a://code/a.jar")], "s3": {"endpoint": "https://minio.example.com"}},
        {"code": [_code("s3a://code/a.jar")]},
        'spec.s3.endpoint: "https://s3.amazonaws.com" is not allowed in namespace cabs',
    ),
    (
        "s3Endpoints",
        {"code": ["s3a://code/**"]},
        {"code": [_code("s3a://code/a.jar")]},
        {"code": [_code("s3a://code/a.jar")], "s3": {"endpoint": "http://minio.evil.com:9000"}},
        'spec.s3.endpoint: "http://minio.evil.com:9000" is not allowed in namespace cabs; '
        "write a value that matches one of https://s3.amazonaws.com",
    ),
]
